import { once } from "node:events";
import { type ClientHttp2Session, connect as connectHttp2, constants } from "node:http2";
import { connect, type Socket } from "node:net";
import { status } from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { readSamples, total } from "../../support/metric-samples.js";
import { callHeaders, frame, greeting, grpcStatusOf, prefixed } from "./bare-grpc.js";

const maxConnections = 12;
const rpc = "/latchkey.v1.KeysService/ListKeys";
const empty = prefixed(Buffer.alloc(0));

let app: TestApp;
let key: string;
beforeAll(async () => {
  app = await openTestApp({ maxConnections, metricsPort: 0 });
  key = (await createWorkspace(app.httpUrl)).key;
});
afterAll(() => app.close());

/** How each port is spoken to by a client that does nothing more. */
const ports = [
  { port: "HTTP", url: () => app.httpUrl, greeted: Buffer.alloc(0) },
  { port: "gRPC", url: () => `http://${app.grpcAddress}`, greeted: greeting },
];

describe.each(ports)("a $port port with as many connections as it takes", ({ url, greeted, port }) => {
  it("closes the one that is idle longest for a new one, and none that is used", async () => {
    const before = await closedConnections();
    const idle: Socket[] = [];
    for (let count = 0; count < maxConnections - 1; count++) {
      const socket = openSocket(url());
      await once(socket, "connect");
      socket.write(greeted);
      idle.push(socket);
    }
    const used = port === "HTTP" ? httpClient() : grpcClient();
    await used.call();
    // A credential that was valid once speaks for a connection, though it is idle now.
    for (let count = 0; count < 5; count++) {
      const another = openSocket(url());
      await once(another, "connect");
      another.write(greeted);
      await expect.poll(() => idle[count]?.destroyed, { timeout: 10_000 }).toBe(true);
    }
    expect(idle.slice(5).some(({ destroyed }) => destroyed)).toBe(false);
    await used.call();
    expect((await closedConnections()) - before).toBeGreaterThanOrEqual(5);
  });

  it("serves a client that comes then, as often as it comes", async () => {
    for (let count = 0; count < 2 * maxConnections; count++) openSocket(url()).write(greeted);
    for (let times = 0; times < 3; times++) await (port === "HTTP" ? httpClient() : grpcClient()).call();
  });
});

it("a credential that was not looked at does not speak for an HTTP connection", async () => {
  const pretenders = await Promise.all(
    Array.from({ length: maxConnections - 1 }, async () => {
      const socket = openSocket(app.httpUrl);
      socket.write("GET /livez HTTP/1.1\r\nhost: a\r\nauthorization: x\r\n\r\n");
      await once(socket, "data");
      return socket;
    }),
  );
  const fresh = openSocket(app.httpUrl);
  await once(fresh, "connect");
  await httpClient().call();
  await expect.poll(() => pretenders.filter(({ destroyed }) => destroyed).length, { timeout: 10_000 }).toBe(1);
  expect(fresh.destroyed).toBe(false);
});

it("streams that need no credential do not keep a connection when the port is full", async () => {
  const watchers = Array.from({ length: maxConnections }, () => openSession());
  for (const session of watchers) {
    const watching = session.request(callHeaders("/grpc.health.v1.Health/Watch", "")).end(empty);
    await once(watching.on("error", () => {}).resume(), "data");
  }
  await grpcClient().call();
  await expect.poll(() => watchers.filter(({ closed }) => closed).length).toBe(1);
});

describe("a gRPC connection on which nothing is asked any more", () => {
  it("is closed after a while with a GOAWAY, and its client is served on a new one", async () => {
    const impatient = await openTestApp({ limits: { grpcIdleMs: 1_500 } });
    onTestFinished(() => impatient.close());
    const { key: known } = await createWorkspace(impatient.httpUrl);
    const session = openSession(impatient);
    const call = (over: ClientHttp2Session) => grpcStatusOf(over.request(callHeaders(rpc, known)).end(empty));
    const goaway = once(session, "goaway");
    for (let times = 0; times < 4; times++) {
      expect(await call(session)).toBe(status.OK);
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
    expect(session.closed, "it was in use all the time").toBe(false);
    expect((await goaway)[0]).toBe(constants.NGHTTP2_NO_ERROR);
    await expect.poll(() => session.destroyed).toBe(true);
    expect(await call(openSession(impatient))).toBe(status.OK);
  });

  it.each([
    ["headers that cannot be decoded", frame(1, 4, 1, Buffer.alloc(7, 0xff))],
    ["a frame of the wrong size", frame(6, 0, 0, Buffer.alloc(3))],
    ["data on no stream", frame(0, 0, 0, Buffer.alloc(3))],
  ])("is closed soon if its client broke HTTP/2: %s", async (_what, broken) => {
    const socket = openSocket(`http://${app.grpcAddress}`);
    socket.write(Buffer.concat([greeting, broken]));
    await once(socket, "close", { signal: AbortSignal.timeout(20_000) });
  });

  it("is kept while its client answers", async () => {
    const session = openSession();
    expect(await grpcStatusOf(session.request(callHeaders(rpc, key)).end(empty))).toBe(status.OK);
    await new Promise((resolve) => setTimeout(resolve, 6_000));
    expect(session.destroyed).toBe(false);
    expect(await grpcStatusOf(session.request(callHeaders(rpc, key)).end(empty))).toBe(status.OK);
  });
});

function openSocket(url: string): Socket {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.on("error", () => {}).resume();
  onTestFinished(() => void socket.destroy());
  return socket;
}

function openSession({ grpcAddress }: TestApp = app): ClientHttp2Session {
  const session = connectHttp2(`http://${grpcAddress}`);
  session.on("error", () => {});
  onTestFinished(() => session.destroy());
  return session;
}

/** A client that stays with its connection. */
function grpcClient() {
  const session = openSession();
  return {
    async call() {
      expect(await grpcStatusOf(session.request(callHeaders(rpc, key)).end(empty))).toBe(status.OK);
    },
  };
}

function httpClient() {
  const socket = openSocket(app.httpUrl);
  return {
    async call() {
      socket.write(
        `POST /v1/keys.listKeys HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${key}\r\ncontent-length: 0\r\n\r\n`,
      );
      const [answer] = await once(socket, "data", { signal: AbortSignal.timeout(10_000) });
      expect(String(answer)).toMatch(/^HTTP\/1\.1 200 /);
    },
  };
}

async function closedConnections(): Promise<number> {
  return total(await readSamples(app), "latchkey_shed_total", { bottleneck: "connections" });
}
