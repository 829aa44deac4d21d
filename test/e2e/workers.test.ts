import { Agent, request } from "node:http";
import { connect } from "node:net";
import type { Client } from "@grpc/grpc-js";
import { describe, expect, inject, onTestFinished, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { callUnary, openGrpcJs } from "../support/clients/grpc-js.js";
import { headersOf } from "../support/clients/headers.js";
import { isRefused } from "../support/clients/sockets.js";
import { createDatabase } from "../support/harness.js";
import { readSamples, type Sample, total } from "../support/metric-samples.js";
import { type Process, remainingProcesses, until } from "./processes.js";
import {
  call,
  expectUserError,
  type Launch,
  launch,
  makeSandbox,
  readSecret,
  type Sandbox,
  type Service,
  start,
  usedPort,
  waitForExit,
  within,
} from "./service.js";

const operatorKey = "operator-credential-of-the-start-tests";

describe("with WORKERS=2", () => {
  test("both ports are served by two processes; each log line names its worker, and the metrics combine both", async () => {
    const { service } = await startWorkers({ METRICS_PORT: "0" });
    expect(workersOf(service)).toHaveLength(2);
    const { data } = await call(service, "/v2/workspaces.createWorkspace", operatorKey, { name: "Acme" });
    const { key } = data as Record<string, string>;
    const before = await readMetrics(service);
    for (const callMethod of openClients(service, key)) expect(await callMethod("ListKeys")).toBe("ok");

    const calls = await until("every call is logged", () => {
      const lines = linesOf(service).filter(({ method }) => /ListKeys$/.test(`${method}`));
      return lines.length === 8 ? lines : undefined;
    });
    for (const protocol of ["http", "grpc"]) {
      const servedBy = calls.filter((line) => line["protocol"] === protocol).map(({ worker }) => worker);
      expect(servedBy.sort(), protocol).toEqual([1, 1, 2, 2]);
    }
    const after = await readMetrics(service);
    const grown = (name: string, labels = {}) => total(after, name, labels) - total(before, name, labels);
    expect(grown("latchkey_lookups_total", { kind: "key" }), "counters are added up").toBe(8);
    const method = "/latchkey.v1.KeysService/ListKeys";
    for (const protocol of ["http", "grpc"]) {
      expect(grown("latchkey_calls_total", { protocol, method, code: "ok" })).toBe(4);
      expect(grown("latchkey_call_duration_seconds_count", { protocol, method }), "and so are histograms").toBe(4);
      expect(grown("latchkey_call_duration_seconds_bucket", { protocol, method, le: "+Inf" })).toBe(4);
    }
    expect(total(after, "latchkey_pool_connections"), "ten per worker").toBe(20);
    expect(total(after, "latchkey_redis_in_use"), "a gauge that is the same in all workers is not added up").toBe(1);
    for (const name of ["nodejs_eventloop_lag_p99_seconds", "process_resident_memory_bytes"]) {
      expect(after.filter((sample) => sample.name === name)).toHaveLength(1);
    }
  });

  test("the metrics port has one build_info and the probes; it is ready until the shutdown begins", async () => {
    const { service } = await startWorkers({ METRICS_PORT: "0", SHUTDOWN_DELAY_MS: "2000" });
    const built = (await readMetrics(service)).filter(({ name }) => name === "latchkey_build_info");
    expect(built.map(({ value }) => value)).toEqual([1]);
    const [metricsUrl = ""] = /http:\S+\/metrics/.exec(service.stdout()) ?? [];
    const probe = async (path: string) => (await fetch(new URL(path, metricsUrl)).catch(() => undefined))?.status;
    expect([await probe("/livez"), await probe("/readyz")]).toEqual([200, 200]);
    service.signal("SIGTERM");
    await until("it is not ready", async () => (await probe("/readyz")) === 503 || undefined);
    expect(await probe("/livez")).toBe(200);
    expect(await waitForExit(service)).toMatchObject({ code: 0 });
  });

  test("revocation: every worker refuses a disabled workspace from the moment of the acknowledgement", async () => {
    const { service } = await startWorkers();
    const { data } = await call(service, "/v2/workspaces.createWorkspace", operatorKey, { name: "Acme" });
    const { workspaceId, key } = data as Record<string, string>;
    const all = openClients(service, key);
    for (const callMethod of all) expect(await callMethod("ListKeys"), "each worker has cached the key").toBe("ok");

    const disabled = { workspaceId, reason: "UNPAID_BILLING" };
    expect(await call(service, "/v2/workspaces.disableWorkspace", operatorKey, disabled)).toMatchObject({
      status: 200,
    });
    const results = await Promise.all(all.map((callMethod) => callMethod("ListKeys")));
    expect(results).toEqual(all.map(() => "refused"));
    await until("both workers have logged a refusal", () => {
      const refusing = linesOf(service).filter(({ code }) => code === "authorization/workspace_disabled");
      const workers = new Set(refusing.map(({ worker }) => worker));
      return (workers.has(1) && workers.has(2)) || undefined;
    });
  });

  test("each worker accepts MAX_CONNECTIONS connections and closes further ones, without a busy loop", async () => {
    const { service } = await startWorkers({ METRICS_PORT: "0", MAX_CONNECTIONS: "10" });
    const { hostname, port } = new URL(service.httpUrl);
    const sockets = Array.from({ length: 30 }, () =>
      connect(Number(port), hostname)
        .on("error", () => {})
        .resume(),
    );
    let closed = 0;
    for (const socket of sockets) socket.once("close", () => closed++);
    await until("ten of thirty are closed", () => closed >= 10 || undefined);
    const counted = total(await readMetrics(service), "latchkey_shed_total", { bottleneck: "connections" });
    expect(counted, "counted once, not passed between the workers repeatedly").toBeLessThanOrEqual(20);
    expect(counted).toBeGreaterThanOrEqual(10);
    for (const socket of sockets) socket.destroy();
    await until(
      "calls are served again",
      async () => (await fetch(`${service.httpUrl}/livez`).catch(() => undefined))?.ok,
    );
  });

  test("graceful shutdown: SIGTERM lets the calls in flight finish in every worker, and leaves no process behind", async () => {
    // Without Redis: if it is slow for some seconds, that is logged, too.
    const { service, sandbox, databaseUrl } = await startWorkers({ REDIS_URL: undefined });
    const descendants = service.descendants();
    const loggedBefore = service.stderr();
    const lockHolder = openSql(databaseUrl, { max: 2, onnotice: () => {} });
    onTestFinished(() => lockHolder.end({ timeout: 1 }));
    let results: Promise<string[]> = Promise.resolve([]);
    // While this transaction locks the table, the calls wait in the database.
    await lockHolder.begin(async (sql) => {
      await sql`lock table audit_events in access exclusive mode`;
      // Two per worker: the operator's share of the pool is three connections per worker.
      const some = openClients(service).filter((_, index) => index % 4 < 2);
      results = Promise.all(some.map((callMethod) => callMethod("ListAuditEvents")));
      await until("all calls wait", async () => {
        const waiting = await lockHolder`
          select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database() and query like '%from audit_events%'`;
        return waiting.length === 4 || undefined;
      });
      service.signalGroup("SIGTERM");
      await until("the HTTP port is closed", () => isClosed(Number(new URL(service.httpUrl).port)));
      await until("the gRPC port is closed", () => isClosed(Number(service.grpcAddress.split(":")[1])));
    });

    expect(await results).toEqual(Array(4).fill("ok"));
    const { code, stderr } = await waitForExit(service);
    expect(code).toBe(0);
    const lines = linesIn(stderr.slice(loggedBefore.length));
    expect(lines.length).toBeGreaterThan(0);
    expect(
      lines.filter(({ level }) => level !== 30),
      "no warning or error is logged",
    ).toEqual([]);
    expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
  });

  test("a second signal after one second does not wait for calls in flight", async () => {
    const { service, sandbox } = await startWorkers();
    const descendants = service.descendants();
    const { port } = new URL(service.httpUrl);
    const stuck = request({ port, method: "POST", path: "/v2/workspaces.listWorkspaces", headers: unfinishedHeaders });
    stuck.on("error", () => {});
    stuck.flushHeaders();
    await new Promise((resolve) => stuck.once("continue", resolve));

    service.signalGroup("SIGINT");
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    service.signalGroup("SIGINT");
    expect(await waitForExit(service, 8_000)).toMatchObject({ code: 130 });
    expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
  });

  test("a worker that hangs delays neither the metrics nor the end of the shutdown, and its last known counts stay", async () => {
    const { service, sandbox } = await startWorkers({ METRICS_PORT: "0" });
    const descendants = service.descendants();
    for (const callMethod of openClients(service)) expect(await callMethod("ListWorkspaces")).toBe("ok");
    const method = "/latchkey.v1.WorkspacesService/ListWorkspaces";
    const counted = async () => total(await readMetrics(service), "latchkey_calls_total", { method });
    expect(await counted()).toBe(8);

    const [hung] = workersOf(service);
    process.kill(hung?.pid ?? 0, "SIGSTOP");
    expect(await within(counted(), 5_000, "the metrics are served")).toBe(8);
    service.signal("SIGTERM");
    expect(await waitForExit(service, 30_000)).toMatchObject({ code: 0 });
    const killed = linesOf(service).filter(({ msg }) => /did not exit in time/.test(msg));
    expect(killed, "only the worker that hangs is killed").toHaveLength(1);
    expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
  });

  test("a killed worker is replaced while the other serves, and no write or count is lost; if the primary is killed, all workers exit", async () => {
    const { service, sandbox, databaseUrl } = await startWorkers({ METRICS_PORT: "0" });
    const [victim] = workersOf(service);
    const created: string[] = [];
    let failed = 0;
    let traffic = true;
    const writing = (async () => {
      const agent = new Agent({ maxSockets: 1 }); // a connection for each call
      while (traffic) {
        const name = `workspace ${created.length}`;
        const status = await postHttp(service, "workspaces.createWorkspace", operatorKey, { name }, agent).catch(
          () => 0,
        );
        if (status === 200) created.push(name);
        else failed += 1;
      }
    })();
    await until("there is traffic", () => created.length > 1 || undefined);

    for (const callMethod of openClients(service)) expect(await callMethod("ListWorkspaces")).toBe("ok");
    const method = "/latchkey.v1.WorkspacesService/ListWorkspaces";
    const counted = async () => total(await readMetrics(service), "latchkey_calls_total", { method });
    expect(await counted()).toBe(8);
    process.kill(victim?.pid ?? 0, "SIGKILL");
    const exitLine = await until("the exit is logged", () =>
      linesOf(service).find(({ msg }) => /exited unexpectedly/.test(msg)),
    );
    expect(await counted(), "the counts of the killed worker are still included").toBe(8);
    expect(exitLine).toMatchObject({ worker: expect.any(Number), reason: "its process was ended by SIGKILL" });
    await until("the worker is replaced", () => linesOf(service).find(({ msg }) => /was replaced/.test(msg)));
    traffic = false;
    await writing;
    expect(await counted()).toBe(8);

    expect(failed, "the call that it processed, and the connection that it was about to receive").toBeLessThanOrEqual(
      2,
    );
    const stored = await readNames(databaseUrl);
    expect(created.filter((name) => !stored.has(name))).toEqual([]);
    expect(workersOf(service)).toHaveLength(2);
    for (const callMethod of openClients(service)) expect(await callMethod("ListWorkspaces")).toBe("ok");

    const descendants = service.descendants();
    service.signal("SIGKILL");
    expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
  });

  test.for(["HTTP_PORT", "METRICS_PORT"])(
    "a %s that is in use is reported once, with a readable error",
    async (variable) => {
      const sandbox = makeSandbox();
      const port = `${await usedPort()}`;
      const launched = launch(sandbox, { set: { ...(await settings()).set, [variable]: port } });
      const failure = await waitForExit(launched);
      expectUserError(failure, `127.0.0.1:${port}`, /already/, variable);
      expect(failure.stderr.match(/Cannot listen/g)).toHaveLength(1);
      expect(await remainingProcesses([], sandbox.folder)).toEqual([]);
    },
  );

  test("the first start starts the embedded backends once, and Ctrl-C stops everything", async () => {
    const sandbox = makeSandbox();
    const service = await start(sandbox, { set: { WORKERS: "2" } });
    expect(workersOf(service)).toHaveLength(2);
    const listed = await call(service, "/v1/keys.listKeys", readSecret(sandbox.firstKeyFile));
    expect(listed).toMatchObject({ status: 200, data: [{ name: "first key" }] });
    const descendants = service.descendants();

    service.signalGroup("SIGINT");
    expect(await waitForExit(service)).toMatchObject({ code: 0 });
    expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
  });
});

const unfinishedHeaders = {
  authorization: `Bearer ${operatorKey}`,
  "content-type": "application/json",
  "content-length": "100",
  expect: "100-continue",
};

interface Line extends Record<string, unknown> {
  readonly level: number;
  readonly msg: string;
  readonly worker?: number;
}

/** Two workers on a database of the test run, which starts faster than an embedded one. */
async function settings() {
  const database = await createDatabase(inject("template"));
  onTestFinished(() => database.drop());
  const set = { DATABASE_URL: database.url, REDIS_URL: inject("redisUrl"), OPERATOR_KEY: operatorKey, WORKERS: "2" };
  return { databaseUrl: database.url, set };
}

async function startWorkers(
  extra: Record<string, string | undefined> = {},
): Promise<{ service: Service; sandbox: Sandbox; databaseUrl: string }> {
  const { databaseUrl, set } = await settings();
  const sandbox = makeSandbox();
  return { service: await start(sandbox, { set: { ...set, ...extra } }), sandbox, databaseUrl };
}

function workersOf(service: Launch): Process[] {
  return service.descendants().filter(({ command }) => command.includes("worker.js"));
}

/** Opens four connections over HTTP, then four over gRPC. Each consecutive pair of them reaches both workers. */
function openClients(service: Service, credential = operatorKey): ((method: string) => Promise<"ok" | "refused">)[] {
  const overHttp = Array.from({ length: 4 }, () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    onTestFinished(() => agent.destroy());
    return async (method: string) => {
      const operation = `${serviceOf(method).toLowerCase()}.${method.charAt(0).toLowerCase()}${method.slice(1)}`;
      const status = await postHttp(service, operation, credential, {}, agent);
      return status === 200 ? "ok" : "refused";
    };
  });
  const overGrpc = Array.from({ length: 4 }, () => {
    // By default, clients of one process share a connection.
    const client = openGrpcJs(service.grpcAddress, undefined, { "grpc.use_local_subchannel_pool": 1 });
    onTestFinished(() => client.close());
    return async (method: string) => callGrpc(client, `/latchkey.v1.${serviceOf(method)}Service/${method}`, credential);
  });
  return [...overHttp, ...overGrpc] as ((method: string) => Promise<"ok" | "refused">)[];
}

function serviceOf(method: string): string {
  return method === "ListKeys" ? "Keys" : "Workspaces";
}

/** The status of a call on a connection of this agent. */
function postHttp(
  { httpUrl }: Service,
  operation: string,
  credential: string,
  body: object,
  agent: Agent,
): Promise<number | undefined> {
  const headers = { authorization: `Bearer ${credential}`, "content-type": "application/json" };
  return new Promise((resolve, reject) => {
    const sent = request(`${httpUrl}/v2/${operation}`, { agent, method: "POST", headers, timeout: 12_000 });
    sent
      .once("timeout", () => sent.destroy())
      .once("error", reject)
      .once("response", (response) => response.resume().once("end", () => resolve(response.statusCode)))
      .end(JSON.stringify(body));
  });
}

/** Calls with raw bytes. An empty request has none. */
async function callGrpc(client: Client, path: string, credential: string): Promise<"ok" | "refused"> {
  const deadline = Date.now() + 15_000;
  const { error } = await callUnary(client, path, headersOf(credential), undefined, { deadline });
  return error ? "refused" : "ok";
}

async function isClosed(port: number): Promise<true | undefined> {
  return (await isRefused(port)) || undefined;
}

async function readMetrics(service: Service): Promise<Sample[]> {
  return readSamples({ metricsUrl: /^ +Metrics +(\S+)$/m.exec(service.stdout())?.[1] });
}

/** The names of the workspaces in the database. */
async function readNames(databaseUrl: string): Promise<Set<string>> {
  const sql = openSql(databaseUrl, { max: 1 });
  onTestFinished(() => sql.end({ timeout: 1 }));
  const rows = await sql<{ name: string }[]>`select name from workspaces`;
  return new Set(rows.map(({ name }) => name));
}

function linesOf(service: Launch): Line[] {
  return linesIn(service.stderr());
}

function linesIn(text: string): Line[] {
  const complete = text.slice(0, text.lastIndexOf("\n") + 1);
  return complete
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line));
}
