import { Agent, request } from "node:http";
import { connect } from "node:net";
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import { describe, expect, inject, onTestFinished, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { createDatabase } from "../support/harness.js";
import { readSamples, type Sample, total } from "../support/metric-samples.js";
import { leftOf, type Process, until } from "./processes.js";
import {
  call,
  ending,
  expectReadableFailure,
  type Launch,
  launch,
  makePlace,
  type Place,
  readSecret,
  type Service,
  start,
  takenPort,
} from "./service.js";

const operatorKey = "operator-credential-of-the-start-tests";

describe("with WORKERS=2", () => {
  test("both ports are served by two processes; each line of the log names one, and the metrics are of both", async () => {
    const { service } = await startWorkers({ METRICS_PORT: "0" });
    expect(workersOf(service)).toHaveLength(2);
    const { data } = await call(service, "/v2/workspaces.createWorkspace", operatorKey, { name: "Acme" });
    const { key } = data as Record<string, string>;
    const before = await readMetrics(service);
    for (const ask of askers(service, key)) expect(await ask("ListKeys")).toBe("ok");

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
    expect(total(after, "latchkey_pool_connections"), "ten of each").toBe(20);
    expect(total(after, "latchkey_redis_in_use"), "what is the same in all is not added").toBe(1);
    for (const name of ["nodejs_eventloop_lag_p99_seconds", "process_resident_memory_bytes"]) {
      expect(after.filter((sample) => sample.name === name)).toHaveLength(1);
    }
  });

  test("a workspace that is disabled is refused by every worker from the moment that this is acknowledged", async () => {
    const { service } = await startWorkers();
    const { data } = await call(service, "/v2/workspaces.createWorkspace", operatorKey, { name: "Acme" });
    const { workspaceId, key } = data as Record<string, string>;
    const all = askers(service, key);
    for (const ask of all) expect(await ask("ListKeys"), "each worker holds the key").toBe("ok");

    const disabled = { workspaceId, reason: "UNPAID_BILLING" };
    expect(await call(service, "/v2/workspaces.disableWorkspace", operatorKey, disabled)).toMatchObject({
      status: 200,
    });
    const answers = await Promise.all(all.map((ask) => ask("ListKeys")));
    expect(answers).toEqual(all.map(() => "refused"));
    await until("both workers have told that they refused", () => {
      const refusing = linesOf(service).filter(({ code }) => code === "authorization/workspace_disabled");
      const workers = new Set(refusing.map(({ worker }) => worker));
      return (workers.has(1) && workers.has(2)) || undefined;
    });
  });

  test("each worker takes MAX_CONNECTIONS connections and closes others; nobody is kept busy by those", async () => {
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
    expect(counted, "and told once, not offered again and again").toBeLessThanOrEqual(20);
    expect(counted).toBeGreaterThanOrEqual(10);
    for (const socket of sockets) socket.destroy();
    await until(
      "calls are served again",
      async () => (await fetch(`${service.httpUrl}/livez`).catch(() => undefined))?.ok,
    );
  });

  test("SIGTERM lets the calls that are under way finish in every worker, and leaves nothing behind", async () => {
    const { service, place, databaseUrl } = await startWorkers();
    const family = service.family();
    const loggedBefore = service.stderr();
    const holder = openSql(databaseUrl, { max: 2, onnotice: () => {} });
    onTestFinished(() => holder.end({ timeout: 1 }));
    let answers: Promise<string[]> = Promise.resolve([]);
    // While this transaction holds the table, the calls wait in the database.
    await holder.begin(async (sql) => {
      await sql`lock table audit_events in access exclusive mode`;
      // Two for each worker: the operator has three connections of each to the database.
      const some = askers(service).filter((_, index) => index % 4 < 2);
      answers = Promise.all(some.map((ask) => ask("ListAuditEvents")));
      await until("all calls wait", async () => {
        const waiting = await holder`
          select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database() and query like '%from audit_events%'`;
        return waiting.length === 4 || undefined;
      });
      service.signalGroup("SIGTERM");
      await until("the HTTP port is closed", () => isClosed(Number(new URL(service.httpUrl).port)));
      await until("the gRPC port is closed", () => isClosed(Number(service.grpcAddress.split(":")[1])));
    });

    expect(await answers).toEqual(Array(4).fill("ok"));
    const { code, stderr } = await ending(service);
    expect(code).toBe(0);
    expect(levelsIn(stderr.slice(loggedBefore.length)), "nothing that looks like a fault").toEqual(new Set([30]));
    expect(await leftOf(family, place.folder)).toEqual([]);
  });

  test("another signal after a second does not wait for calls that are under way", async () => {
    const { service, place } = await startWorkers();
    const family = service.family();
    const { port } = new URL(service.httpUrl);
    const stuck = request({ port, method: "POST", path: "/v2/workspaces.listWorkspaces", headers: unfinished });
    stuck.on("error", () => {});
    stuck.flushHeaders();
    await new Promise((resolve) => stuck.once("continue", resolve));

    service.signalGroup("SIGINT");
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    service.signalGroup("SIGINT");
    expect(await ending(service, 8_000)).toMatchObject({ code: 130 });
    expect(await leftOf(family, place.folder)).toEqual([]);
  });

  test("a killed worker is replaced while the other serves, and no write or count is lost; if the primary is killed, all of them go", async () => {
    const { service, place, databaseUrl } = await startWorkers({ METRICS_PORT: "0" });
    const [victim] = workersOf(service);
    const made: string[] = [];
    let failed = 0;
    let traffic = true;
    const writing = (async () => {
      const agent = new Agent({ maxSockets: 1 }); // a connection for each call
      while (traffic) {
        const name = `workspace ${made.length}`;
        const status = await postHttp(service, "workspaces.createWorkspace", operatorKey, { name }, agent).catch(
          () => 0,
        );
        if (status === 200) made.push(name);
        else failed += 1;
      }
    })();
    await until("there is traffic", () => made.length > 1 || undefined);

    for (const ask of askers(service)) expect(await ask("ListWorkspaces")).toBe("ok");
    const method = "/latchkey.v1.WorkspacesService/ListWorkspaces";
    const counted = async () => total(await readMetrics(service), "latchkey_calls_total", { method });
    expect(await counted()).toBe(8);
    process.kill(victim?.pid ?? 0, "SIGKILL");
    const lost = await until("the loss is told", () =>
      linesOf(service).find(({ msg }) => /exited unexpectedly/.test(msg)),
    );
    expect(await counted(), "those of the lost one are still counted").toBe(8);
    expect(lost).toMatchObject({ worker: expect.any(Number), reason: "its process was ended by SIGKILL" });
    await until("it is replaced", () => linesOf(service).find(({ msg }) => /was replaced/.test(msg)));
    traffic = false;
    await writing;
    expect(await counted()).toBe(8);

    expect(failed, "the call that it was answering, and the connection that it was being handed").toBeLessThanOrEqual(
      2,
    );
    const stored = await readNames(databaseUrl);
    expect(made.filter((name) => !stored.has(name))).toEqual([]);
    expect(workersOf(service)).toHaveLength(2);
    for (const ask of askers(service)) expect(await ask("ListWorkspaces")).toBe("ok");

    const family = service.family();
    service.signal("SIGKILL");
    expect(await leftOf(family, place.folder)).toEqual([]);
  });

  test.for(["HTTP_PORT", "METRICS_PORT"])("a %s that is in use is told once, in a sentence", async (variable) => {
    const place = makePlace();
    const port = `${await takenPort()}`;
    const launched = launch(place, { set: { ...(await settings()).set, [variable]: port } });
    const failure = await ending(launched);
    expectReadableFailure(failure, `127.0.0.1:${port}`, /already/, variable);
    expect(failure.stderr.match(/Cannot listen/g)).toHaveLength(1);
    expect(await leftOf([], place.folder)).toEqual([]);
  });

  test("the first start brings up the embedded backends once, and Ctrl-C stops everything", async () => {
    const place = makePlace();
    const service = await start(place, { set: { WORKERS: "2" } });
    expect(workersOf(service)).toHaveLength(2);
    const listed = await call(service, "/v1/keys.listKeys", readSecret(place.firstKeyFile));
    expect(listed).toMatchObject({ status: 200, data: [{ name: "first key" }] });
    const family = service.family();

    service.signalGroup("SIGINT");
    expect(await ending(service)).toMatchObject({ code: 0 });
    expect(await leftOf(family, place.folder)).toEqual([]);
  });
});

const unfinished = {
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

/** What each test here sets: two workers on a database of the test run, which starts sooner than one of their own. */
async function settings() {
  const database = await createDatabase(inject("template"));
  onTestFinished(() => database.drop());
  const set = { DATABASE_URL: database.url, REDIS_URL: inject("redisUrl"), OPERATOR_KEY: operatorKey, WORKERS: "2" };
  return { databaseUrl: database.url, set };
}

async function startWorkers(
  more: Record<string, string> = {},
): Promise<{ service: Service; place: Place; databaseUrl: string }> {
  const { databaseUrl, set } = await settings();
  const place = makePlace();
  return { service: await start(place, { set: { ...set, ...more } }), place, databaseUrl };
}

function workersOf(service: Launch): Process[] {
  return service.family().filter(({ command }) => command.includes("worker.js"));
}

/** Four connections over HTTP, then four over gRPC: each pair of them leads to both workers. */
function askers(service: Service, credential = operatorKey): ((method: string) => Promise<"ok" | "refused">)[] {
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
    const client = new Client(service.grpcAddress, credentials.createInsecure(), {
      "grpc.use_local_subchannel_pool": 1,
    });
    onTestFinished(() => client.close());
    return async (method: string) => callGrpc(client, `/latchkey.v1.${serviceOf(method)}Service/${method}`, credential);
  });
  return [...overHttp, ...overGrpc] as ((method: string) => Promise<"ok" | "refused">)[];
}

function serviceOf(method: string): string {
  return method === "ListKeys" ? "Keys" : "Workspaces";
}

/** Gives the status of a call on a connection of this agent. */
function postHttp(
  { httpUrl }: Service,
  operation: string,
  credential: string,
  body: object,
  agent: Agent,
): Promise<number | undefined> {
  const headers = { authorization: `Bearer ${credential}`, "content-type": "application/json" };
  return new Promise((resolve, reject) => {
    const asked = request(`${httpUrl}/v2/${operation}`, { agent, method: "POST", headers, timeout: 12_000 });
    asked
      .once("timeout", () => asked.destroy())
      .once("error", reject)
      .once("response", (response) => response.resume().once("end", () => resolve(response.statusCode)))
      .end(JSON.stringify(body));
  });
}

/** The messages stay bytes, of which an empty request needs none. */
function callGrpc(client: Client, path: string, credential: string): Promise<"ok" | "refused"> {
  const metadata = new Metadata();
  metadata.set("authorization", `Bearer ${credential}`);
  const asIs = (bytes: Buffer) => bytes;
  return new Promise((resolve) => {
    const deadline = Date.now() + 15_000;
    client.makeUnaryRequest(path, asIs, asIs, Buffer.alloc(0), metadata, { deadline }, (error) =>
      resolve(error ? "refused" : "ok"),
    );
  });
}

function isClosed(port: number): Promise<true | undefined> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => {
      socket.destroy();
      resolve(undefined);
    });
    socket.once("error", () => resolve(true));
  });
}

async function readMetrics(service: Service): Promise<Sample[]> {
  return readSamples({ metricsUrl: /^ +Metrics +(\S+)$/m.exec(service.stdout())?.[1] });
}

/** What the workspaces in the database are called. */
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
  const whole = text.slice(0, text.lastIndexOf("\n") + 1);
  return whole
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line));
}

function levelsIn(text: string): Set<number> {
  return new Set(linesIn(text).map(({ level }) => level));
}
