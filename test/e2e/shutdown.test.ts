import { readdirSync } from "node:fs";
import { Agent, type ClientRequest, get as httpGet } from "node:http";
import { connect } from "node:net";
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { createDatabase } from "../support/harness.js";
import { leftOf, type Process, until } from "./processes.js";
import {
  call,
  ending,
  type Launch,
  launch,
  makePlace,
  type Place,
  readSecret,
  type Service,
  start,
  stop,
  within,
} from "./service.js";

const operatorKey = "operator-credential-of-the-start-tests";

describe("stopping", () => {
  test("Ctrl-C stops everything that was started", async () => {
    const place = makePlace();
    const service = await start(place);
    const family = service.family();
    expect(family.length, "PostgreSQL and its processes").toBeGreaterThan(3);

    service.signalGroup("SIGINT");
    expect(await ending(service)).toMatchObject({ code: 0, signal: null });
    expect(await leftOf(family, place.folder)).toEqual([]);
    expectNothingTemporary(place);
  });

  test("SIGTERM stops everything that was started, quietly", async () => {
    const place = makePlace();
    const service = await start(place);
    const family = service.family();
    const loggedBefore = service.stderr();

    service.signal("SIGTERM");
    const { code, signal, stderr } = await ending(service);
    expect({ code, signal }).toEqual({ code: 0, signal: null });
    // On a busy machine, Redis may have been late at first, and be back just now.
    const logged = stderr.slice(loggedBefore.length).replace(/^.*"Redis is back".*\n/gm, "");
    expect(logged, "nothing that looks like a fault").toBe("");
    expect(await leftOf(family, place.folder)).toEqual([]);
    expectNothingTemporary(place);
  });

  test("Ctrl-C while the first start is still under way stops it too, and the next start works", async () => {
    const place = makePlace();
    const launched = launch(place);
    const family = await familyWith(launched, "initdb");

    launched.signalGroup("SIGINT");
    expect(await ending(launched)).toMatchObject({ code: 0, signal: null });
    expect(await leftOf(family, place.folder)).toEqual([]);
    expectNothingTemporary(place);
    await start(place);
  });

  test.for([
    ["has just begun", "host.js"],
    ["makes its database", "initdb"],
  ] as const)(
    "kill -9 while the first start %s leaves no process behind, and the next start works",
    async ([, program]) => {
      const place = makePlace();
      const launched = launch(place);
      const family = await familyWith(launched, program);

      launched.signal("SIGKILL");
      expect(await leftOf(family, place.folder)).toEqual([]);
      expectNothingTemporary(place);
      await start(place);
      expect(readSecret(place.firstKeyFile), "this is the first start that was finished").toMatch(/^lk_/);
      expect(readdirSync(place.dataDir).sort(), "no half-made data stays").toEqual([
        "first.key",
        "operator.key",
        "postgres",
        "valkey",
      ]);
    },
  );

  test("after kill -9 the embedded backends go away by themselves", async () => {
    const place = makePlace();
    const service = await start(place);
    const family = service.family();

    service.signal("SIGKILL");
    expect(await leftOf(family, place.folder)).toEqual([]);
    expectNothingTemporary(place);
  });

  test("after kill -9 a new start works at once, and every acknowledged write is there", async () => {
    const place = makePlace();
    const first = await start(place);
    const key = readSecret(place.firstKeyFile);
    const externalIds = Array.from({ length: 20 }, (_, index) => `user-${index}`);
    for (const externalId of externalIds) {
      expect(await call(first, "/v2/identities.createIdentity", key, { externalId })).toMatchObject({ status: 200 });
    }

    first.signal("SIGKILL");
    const second = await start(place);
    const { data } = await call(second, "/v2/identities.listIdentities", key);
    expect(data).toMatchObject(externalIds.map((externalId) => ({ externalId })));
  });

  test("when the process that keeps its backends is killed, it says so in a sentence and ends with 1", async () => {
    const place = makePlace();
    const service = await start(place);
    const host = service.family().find(({ command }) => /\/host\.js /.test(command));
    expect(host).toBeDefined();

    process.kill(host?.pid ?? 0, "SIGKILL");
    const { code, stderr } = await ending(service);
    expect(code).toBe(1);
    expect(stderr).toMatch(/^The process that supervises the embedded backends has ended/m);
    expect(stderr).not.toMatch(/^ +at /m);
  });
});

describe("a stop is not held up by", () => {
  test("an idle keep-alive HTTP connection", async () => {
    const service = await startOnDatabase();
    const agent = new Agent({ keepAlive: true });
    onTestFinished(() => agent.destroy());
    await answered(httpGet(`${service.httpUrl}/v2/liveness`, { agent }));
    await until("the connection is idle", () => (Object.keys(agent.freeSockets).length > 0 ? true : undefined));

    expectPrompt(await stop(service));
  });

  test("an idle gRPC client", async () => {
    const service = await startOnDatabase();
    await callGrpc(grpcClient(service.grpcAddress), "ListWorkspaces", operatorKey);

    expectPrompt(await stop(service));
  });

  test("a connection to the HTTP port that never asks anything, as browsers and load balancers open", async () => {
    const service = await startOnDatabase();
    await openConnection(httpPortOf(service));
    await answered(httpGet(`${service.httpUrl}/v2/liveness`)); // so the connection before it has been accepted

    expectPrompt(await stop(service));
  });

  test("a connection to the gRPC port that never asks anything", async () => {
    const service = await startOnDatabase();
    const connection = await openConnection(grpcPortOf(service));
    await until("the server greets", () => (connection.received().length > 0 ? true : undefined));

    expectPrompt(await stop(service));
  });

  test("a client that never finishes its request: it is cut off when the drain time of 10 s is over", async () => {
    const service = await startOnDatabase();
    const connection = await openConnection(httpPortOf(service));
    const head = [
      "POST /v2/workspaces.listWorkspaces HTTP/1.1",
      "Host: localhost",
      `Authorization: Bearer ${operatorKey}`,
      "Content-Type: application/json",
      "Content-Length: 100",
      "Expect: 100-continue",
    ];
    connection.send(`${head.join("\r\n")}\r\n\r\n`);
    await until("the head has been read", () => (connection.received().includes(" 100 ") ? true : undefined));

    service.signal("SIGTERM");
    expect(await ending(service, 14_000)).toMatchObject({ code: 0 });
  });

  test("a gRPC client that is frozen: it is cut off when the drain time of 10 s is over", async () => {
    const service = await startOnDatabase();
    const connection = await openConnection(grpcPortOf(service));
    await until("the server greets", () => (connection.received().length > 0 ? true : undefined));
    connection.freeze();

    service.signal("SIGTERM");
    expect(await ending(service, 14_000)).toMatchObject({ code: 0 });
  });
});

describe("calls that are under way when SIGTERM comes", () => {
  test("are answered, through HTTP and gRPC, and new connections are refused", async () => {
    const database = await createDatabase();
    onTestFinished(() => database.drop());
    const service = await start(makePlace(), { set: { DATABASE_URL: database.url, OPERATOR_KEY: operatorKey } });
    const holder = openSql(database.url, { max: 2, onnotice: () => {} });
    onTestFinished(() => holder.end({ timeout: 1 }));

    let overHttp: Promise<unknown> = Promise.resolve();
    let overGrpc: Promise<unknown> = Promise.resolve();
    // While this transaction holds the table, both calls wait in the database. The lease does without that table: with
    // one that it is renewed from, it would be lost, and a call that came later than that refused.
    await holder.begin(async (sql) => {
      await sql`lock table audit_events in access exclusive mode`;
      overHttp = call(service, "/v2/workspaces.listAuditEvents", operatorKey);
      overGrpc = callGrpc(grpcClient(service.grpcAddress), "ListAuditEvents", operatorKey);
      // Should the service drop them, they must not fail before they are looked at.
      for (const answer of [overHttp, overGrpc]) answer.catch(() => {});
      await until("both calls wait", async () => {
        const waiting = await holder`
          select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database() and query like '%from audit_events%'`;
        return waiting.length === 2 || undefined;
      });

      service.signal("SIGTERM");
      await until("the HTTP port is closed", () => isClosed(httpPortOf(service)));
      await until("the gRPC port is closed", () => isClosed(grpcPortOf(service)));
    });

    expect(await overHttp).toMatchObject({ status: 200, data: [] });
    expect(await overGrpc).toBeInstanceOf(Buffer);
    expect(await ending(service)).toMatchObject({ code: 0 });
  });
});

function expectPrompt({ code, ms }: { code: number | null; ms: number }): void {
  expect(code).toBe(0);
  expect(ms, "less than the 10 s that running calls get").toBeLessThan(9_000);
}

/** Waits until it runs this program, and returns all that it runs then. */
function familyWith(launched: Launch, program: string): Promise<Process[]> {
  return until(`it runs ${program}`, () => {
    const family = launched.family();
    return family.some(({ command }) => command.includes(program)) ? family : undefined;
  });
}

/** What was needed on the way is cleared away. */
function expectNothingTemporary(place: Place): void {
  expect(readdirSync(place.temporary)).toEqual([]);
}

function answered(request: ClientRequest): Promise<void> {
  return new Promise((resolve, reject) => {
    request.once("error", reject);
    request.once("response", (response) => response.resume().once("end", resolve));
  });
}

/** A service on a database of the test run: it starts sooner than one with a PostgreSQL of its own. */
async function startOnDatabase(): Promise<Service> {
  const database = await createDatabase();
  onTestFinished(() => database.drop());
  return start(makePlace(), { set: { DATABASE_URL: database.url, OPERATOR_KEY: operatorKey } });
}

function httpPortOf({ httpUrl }: Service): number {
  return Number(new URL(httpUrl).port);
}

function grpcPortOf({ grpcAddress }: Service): number {
  return Number(grpcAddress.split(":")[1]);
}

/** A bare connection. */
async function openConnection(port: number) {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  let received = "";
  socket.setEncoding("latin1").on("data", (chunk) => {
    received += chunk;
  });
  socket.on("error", () => {}); // The service may well cut it off.
  await within(new Promise((resolve) => socket.once("connect", resolve)), 5_000, "a connection");
  return {
    send: (text: string) => socket.write(text),
    received: () => received,
    /** Reads nothing any more, not even that the other side has closed. */
    freeze: () => socket.pause(),
  };
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

function grpcClient(address: string): Client {
  const client = new Client(address, credentials.createInsecure());
  onTestFinished(() => client.close());
  return client;
}

/** Calls through gRPC; the messages stay bytes, of which an empty request needs none. */
function callGrpc(client: Client, method: string, credential: string): Promise<Buffer> {
  const metadata = new Metadata();
  metadata.set("authorization", `Bearer ${credential}`);
  const asIs = (bytes: Buffer) => bytes;
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(
      `/latchkey.v1.WorkspacesService/${method}`,
      asIs,
      asIs,
      Buffer.alloc(0),
      metadata,
      { deadline: Date.now() + 15_000 },
      (error, answer) => (error ? reject(error) : resolve(answer ?? Buffer.alloc(0))),
    );
  });
}
