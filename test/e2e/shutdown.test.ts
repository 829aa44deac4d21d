import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { Agent, type ClientRequest, get as httpGet } from "node:http";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import type { Client } from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { callUnary, openGrpcJs } from "../support/clients/grpc-js.js";
import { headersOf } from "../support/clients/headers.js";
import { isRefused } from "../support/clients/sockets.js";
import { createDatabase } from "../support/harness.js";
import { kill, type Process, remainingProcesses, until } from "./processes.js";
import {
  call,
  type Launch,
  launch,
  makeSandbox,
  readSecret,
  type Sandbox,
  type Service,
  start,
  stop,
  waitForExit,
  within,
} from "./service.js";

const operatorKey = "operator-credential-of-the-start-tests";

describe("graceful shutdown", () => {
  test("Ctrl-C stops everything that was started", async () => {
    const sandbox = makeSandbox();
    const service = await start(sandbox);
    const descendants = service.descendants();
    expect(descendants.length, "PostgreSQL and its processes").toBeGreaterThan(3);

    service.signalGroup("SIGINT");
    expect(await waitForExit(service)).toMatchObject({ code: 0, signal: null });
    expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
    expectNothingTemporary(sandbox);
  });

  test("SIGTERM stops everything that was started, and logs no error", async () => {
    const sandbox = makeSandbox();
    const service = await start(sandbox);
    const descendants = service.descendants();
    const loggedBefore = service.stderr();

    service.signal("SIGTERM");
    const { code, signal, stderr } = await waitForExit(service);
    expect({ code, signal }).toEqual({ code: 0, signal: null });
    // On a busy machine, Redis may have been slow at first, and only just have come back.
    const logged = stderr.slice(loggedBefore.length).replace(/^.*"Redis is available again".*\n/gm, "");
    expect(logged, "no error is logged").toBe("");
    expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
    expectNothingTemporary(sandbox);
  });

  test("Ctrl-C during the first start stops it, too, and the next start works", async () => {
    const sandbox = makeSandbox();
    const launched = launch(sandbox);
    const descendants = await descendantsWith(launched, "initdb");

    launched.signalGroup("SIGINT");
    expect(await waitForExit(launched)).toMatchObject({ code: 0, signal: null });
    expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
    expectNothingTemporary(sandbox);
    await start(sandbox);
  });

  test.for([
    ["has just begun", "host.js"],
    ["creates its database", "initdb"],
  ] as const)(
    "kill -9 while the first start %s leaves no process behind, and the next start works",
    async ([, program]) => {
      const sandbox = makeSandbox();
      const launched = launch(sandbox);
      const descendants = await descendantsWith(launched, program);

      launched.signal("SIGKILL");
      expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
      expectNothingTemporary(sandbox);
      await start(sandbox);
      expect(readSecret(sandbox.firstKeyFile), "this is the first start that was completed").toMatch(/^lk_/);
      expect(readdirSync(sandbox.dataDir).sort(), "no incomplete data remains").toEqual([
        "first.key",
        "operator.key",
        "postgres",
        "valkey",
      ]);
    },
  );

  test("after kill -9 the embedded backends exit by themselves", async () => {
    const sandbox = makeSandbox();
    const service = await start(sandbox);
    const descendants = service.descendants();

    service.signal("SIGKILL");
    expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
    expectNothingTemporary(sandbox);
  });

  test("after kill -9 a new start works immediately, and every acknowledged write exists", async () => {
    const sandbox = makeSandbox();
    const first = await start(sandbox);
    const key = readSecret(sandbox.firstKeyFile);
    const externalIds = Array.from({ length: 20 }, (_, index) => `user-${index}`);
    for (const externalId of externalIds) {
      expect(await call(first, "/v2/identities.createIdentity", key, { externalId })).toMatchObject({ status: 200 });
    }

    first.signal("SIGKILL");
    const second = await start(sandbox);
    const { data } = await call(second, "/v2/identities.listIdentities", key);
    expect(data).toMatchObject(externalIds.map((externalId) => ({ externalId })));
  });

  test("if the process that supervises the backends is killed, the service stops them and exits with 1 and a readable error", async () => {
    const sandbox = makeSandbox();
    const service = await start(sandbox);
    const descendants = service.descendants();

    process.kill(hostOf(service).pid, "SIGKILL");
    const { code, stderr } = await waitForExit(service);
    expect(code).toBe(1);
    expect(stderr).toMatch(/^The process that supervises the embedded backends has ended/m);
    expect(stderr).not.toMatch(/^ +at /m);
    expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
    await start(sandbox);
  });

  test.each(["ready", "stopping"])(
    "after everything was killed, the next start works, also if another process has the number of its PostgreSQL (%s)",
    async (status) => {
      const sandbox = makeSandbox();
      const service = await start(sandbox);
      const key = readSecret(sandbox.firstKeyFile);
      const other = await replaceLockOwner(sandbox, service, status);
      const next = await start(sandbox);
      expect(await call(next, "/v1/keys.listKeys", key)).toMatchObject({ status: 200 });
      expect(await stop(next)).toMatchObject({ code: 0 });
      expect(other.exitCode).toBeNull();
    },
  );

  test("a PostgreSQL in another container, whose number another process has here, is noticed by its socket", async () => {
    const sandbox = makeSandbox();
    await replaceLockOwner(sandbox, await start(sandbox), "ready");
    const socket = join(sandbox.dataDir, "postgres/.s.PGSQL.5432");
    rmSync(socket, { force: true });
    const elsewhere = createServer().listen(socket);
    onTestFinished(() => void elsewhere.close());
    await once(elsewhere, "listening");
    await expect(start(sandbox)).rejects.toThrow("Latchkey already runs on");
  });

  test("if it is killed together with the service, the next start stops the PostgreSQL that they have left, and works", async () => {
    const sandbox = makeSandbox();
    const service = await start(sandbox);
    const key = readSecret(sandbox.firstKeyFile);
    const host = hostOf(service);
    const left = service.descendants().filter(({ pid }) => pid !== host.pid);

    service.signal("SIGSTOP"); // so that it does not notice the end of the other process
    process.kill(host.pid, "SIGKILL");
    service.signal("SIGKILL");
    await waitForExit(service);
    const next = await start(sandbox);
    const remaining = new Set(next.descendants().map(({ pid }) => pid));
    expect(left.filter(({ pid }) => remaining.has(pid))).toEqual([]);
    expect(await call(next, "/v1/keys.listKeys", key)).toMatchObject({ status: 200 });
    expect(await stop(next)).toMatchObject({ code: 0 });
    expect(await remainingProcesses(left, sandbox.folder)).toEqual([]);
  });
});

describe("graceful shutdown is not delayed by", () => {
  test("an idle keep-alive HTTP connection", async () => {
    const service = await startOnDatabase();
    const agent = new Agent({ keepAlive: true });
    onTestFinished(() => agent.destroy());
    await responseTo(httpGet(`${service.httpUrl}/v2/liveness`, { agent }));
    await until("the connection is idle", () => (Object.keys(agent.freeSockets).length > 0 ? true : undefined));

    expectPrompt(await stop(service));
  });

  test("an idle gRPC client", async () => {
    const service = await startOnDatabase();
    await callGrpc(grpcClient(service.grpcAddress), "ListWorkspaces", operatorKey);

    expectPrompt(await stop(service));
  });

  test("a connection to the HTTP port without any request, as browsers and load balancers open", async () => {
    const service = await startOnDatabase();
    await openConnection(httpPortOf(service));
    await responseTo(httpGet(`${service.httpUrl}/v2/liveness`)); // ensures that the connection before it has been accepted

    expectPrompt(await stop(service));
  });

  test("a connection to the gRPC port without any request", async () => {
    const service = await startOnDatabase();
    const connection = await openConnection(grpcPortOf(service));
    await until("the server sends its HTTP/2 settings", () => (connection.received().length > 0 ? true : undefined));

    expectPrompt(await stop(service));
  });

  test("a client that never completes its request: its connection is closed after the drain timeout of 10 s", async () => {
    const service = await startOnDatabase();
    const connection = await openConnection(httpPortOf(service));
    const headers = [
      "POST /v2/workspaces.listWorkspaces HTTP/1.1",
      "Host: localhost",
      `Authorization: Bearer ${operatorKey}`,
      "Content-Type: application/json",
      "Content-Length: 100",
      "Expect: 100-continue",
    ];
    connection.send(`${headers.join("\r\n")}\r\n\r\n`);
    await until("the headers have been read", () => (connection.received().includes(" 100 ") ? true : undefined));

    service.signal("SIGTERM");
    expect(await waitForExit(service, 14_000)).toMatchObject({ code: 0 });
  });

  test("a frozen gRPC client: its connection is closed after the drain timeout of 10 s", async () => {
    const service = await startOnDatabase();
    const connection = await openConnection(grpcPortOf(service));
    await until("the server sends its HTTP/2 settings", () => (connection.received().length > 0 ? true : undefined));
    connection.freeze();

    service.signal("SIGTERM");
    expect(await waitForExit(service, 14_000)).toMatchObject({ code: 0 });
  });
});

describe("calls in flight when SIGTERM arrives", () => {
  test("are completed, over HTTP and gRPC, and new connections are refused", async () => {
    const database = await createDatabase();
    onTestFinished(() => database.drop());
    const service = await start(makeSandbox(), { set: { DATABASE_URL: database.url, OPERATOR_KEY: operatorKey } });
    const lockHolder = openSql(database.url, { max: 2, onnotice: () => {} });
    onTestFinished(() => lockHolder.end({ timeout: 1 }));

    let overHttp: Promise<unknown> = Promise.resolve();
    let overGrpc: Promise<unknown> = Promise.resolve();
    // While this transaction locks the table, both calls wait in the database. The lease does not need that table. A
    // lock on a table that the lease needs would let it expire, and later calls would be refused.
    await lockHolder.begin(async (sql) => {
      await sql`lock table audit_events in access exclusive mode`;
      overHttp = call(service, "/v2/workspaces.listAuditEvents", operatorKey);
      overGrpc = callGrpc(grpcClient(service.grpcAddress), "ListAuditEvents", operatorKey);
      // If the service drops them, the rejections must not be unhandled before they are checked.
      for (const response of [overHttp, overGrpc]) response.catch(() => {});
      await until("both calls wait", async () => {
        const waiting = await lockHolder`
          select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database() and query like '%from audit_events%'`;
        return waiting.length === 2 || undefined;
      });

      service.signal("SIGTERM");
      await until("the HTTP port is closed", () => isClosed(httpPortOf(service)));
      await until("the gRPC port is closed", () => isClosed(grpcPortOf(service)));
    });

    expect(await overHttp).toMatchObject({ status: 200, data: [] });
    expect(await overGrpc).toBeInstanceOf(Buffer);
    expect(await waitForExit(service)).toMatchObject({ code: 0 });
  });
});

function expectPrompt({ code, ms }: { code: number | null; ms: number }): void {
  expect(code).toBe(0);
  expect(ms, "less than the 10 s that calls in flight get").toBeLessThan(9_000);
}

function hostOf(service: Service): Process {
  const host = service.descendants().find(({ command }) => /\/host\.js /.test(command));
  if (host === undefined) throw new Error("no process supervises the backends");
  return host;
}

/** Waits until it runs this program, and returns all of its processes then. */
function descendantsWith(launched: Launch, program: string): Promise<Process[]> {
  return until(`it runs ${program}`, () => {
    const descendants = launched.descendants();
    return descendants.some(({ command }) => command.includes(program)) ? descendants : undefined;
  });
}

/** All temporary files are removed. */
function expectNothingTemporary(sandbox: Sandbox): void {
  expect(readdirSync(sandbox.temporary)).toEqual([]);
}

function responseTo(request: ClientRequest): Promise<void> {
  return new Promise((resolve, reject) => {
    request.once("error", reject);
    request.once("response", (response) => response.resume().once("end", resolve));
  });
}

/** A service on a database of the test run. It starts faster than one with an embedded PostgreSQL. */
async function startOnDatabase(): Promise<Service> {
  const database = await createDatabase();
  onTestFinished(() => database.drop());
  return start(makeSandbox(), { set: { DATABASE_URL: database.url, OPERATOR_KEY: operatorKey } });
}

function httpPortOf({ httpUrl }: Service): number {
  return Number(new URL(httpUrl).port);
}

function grpcPortOf({ grpcAddress }: Service): number {
  return Number(grpcAddress.split(":")[1]);
}

/** Opens a TCP connection. */
async function openConnection(port: number) {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  let received = "";
  socket.setEncoding("latin1").on("data", (chunk) => {
    received += chunk;
  });
  socket.on("error", () => {}); // The service may close it.
  await within(new Promise((resolve) => socket.once("connect", resolve)), 5_000, "a connection");
  return {
    send: (text: string) => socket.write(text),
    received: () => received,
    /** Stops reading, so that it does not even detect that the other side has closed. */
    freeze: () => socket.pause(),
  };
}

async function isClosed(port: number): Promise<true | undefined> {
  return (await isRefused(port)) || undefined;
}

function grpcClient(address: string): Client {
  const client = openGrpcJs(address);
  onTestFinished(() => client.close());
  return client;
}

/** Calls over gRPC with raw bytes. An empty request has none. */
async function callGrpc(client: Client, method: string, credential: string): Promise<Buffer> {
  const deadline = Date.now() + 15_000;
  const path = `/latchkey.v1.WorkspacesService/${method}`;
  const { bytes, error } = await callUnary(client, path, headersOf(credential), undefined, { deadline });
  if (error) throw error;
  return bytes;
}

/**
 * Kills a service with everything that it has started, and writes the number of another process of the same user into the lock
 * files of its PostgreSQL. Returns that process.
 */
async function replaceLockOwner(sandbox: Sandbox, service: Service, status: string): Promise<ChildProcess> {
  const folder = join(sandbox.dataDir, "postgres");
  const { uid, gid } = statSync(folder);
  kill(service.descendants());
  service.signal("SIGKILL");
  await waitForExit(service);
  const other = spawn("sleep", ["1000"], { uid, gid });
  onTestFinished(() => void other.kill());
  for (const name of ["postmaster.pid", ".s.PGSQL.5432.lock"]) {
    const [, ...lines] = readFileSync(join(folder, name), "utf8").split("\n");
    const state = name === "postmaster.pid" ? [status, ""] : [];
    writeFileSync(join(folder, name), [other.pid, ...lines.slice(0, 6), ...state].join("\n"));
  }
  return other;
}
