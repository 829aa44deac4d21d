import { once } from "node:events";
import { type ClientHttp2Session, constants } from "node:http2";
import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { callHeaders, grpcFrame, grpcStatusOf } from "../../support/clients/grpc-streams.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { frame, preface } from "../../support/clients/http2-frames.js";
import { openSocket as openPlainSocket } from "../../support/clients/sockets.js";
import { openTestSession, openTestSocket } from "../../support/clients/test-connections.js";
import { openFileService } from "../../support/file-service.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { readSamples, total } from "../../support/metric-samples.js";

const maxConnections = 12;
const rpc = "/latchkey.v1.KeysService/ListKeys";
const empty = grpcFrame(Buffer.alloc(0));

const { app, key } = await openFileService({ maxConnections, metricsPort: 0 });

/** The bytes that an idle client sends on each port. */
const ports = [
  { port: "HTTP", url: () => app.httpUrl, preface: Buffer.alloc(0) },
  { port: "gRPC", url: () => `http://${app.grpcAddress}`, preface: preface },
];

describe.each(ports)("a $port port at its maximum of connections", ({ url, preface, port }) => {
  it("closes the connection that is idle longest for a new one, and none with a valid credential", async () => {
    const before = await closedConnections();
    const idle: Socket[] = [];
    for (let count = 0; count < maxConnections - 1; count++) {
      const socket = openSocket(url());
      await once(socket, "connect");
      socket.write(preface);
      idle.push(socket);
    }
    const used = port === "HTTP" ? httpClient() : grpcClient();
    await used.call();
    // A connection that has authenticated is kept, although it is idle now.
    for (let count = 0; count < 5; count++) {
      const next = openSocket(url());
      await once(next, "connect");
      next.write(preface);
      await expect.poll(() => idle[count]?.destroyed, { timeout: 10_000 }).toBe(true);
    }
    expect(idle.slice(5).some(({ destroyed }) => destroyed)).toBe(false);
    await used.call();
    expect((await closedConnections()) - before).toBeGreaterThanOrEqual(5);
  });

  it("serves each new client", async () => {
    for (let count = 0; count < 2 * maxConnections; count++) openSocket(url()).write(preface);
    for (let times = 0; times < 3; times++) await (port === "HTTP" ? httpClient() : grpcClient()).call();
  });
});

it("an unverified credential does not protect an HTTP connection from being closed", async () => {
  const unverified = await Promise.all(
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
  await expect.poll(() => unverified.filter(({ destroyed }) => destroyed).length, { timeout: 10_000 }).toBe(1);
  expect(fresh.destroyed).toBe(false);
});

it("streams that need no credential do not protect a connection from being closed when the port is full", async () => {
  const watchers = Array.from({ length: maxConnections }, () => openSession());
  for (const session of watchers) {
    const watching = session.request(callHeaders("/grpc.health.v1.Health/Watch", "")).end(empty);
    await once(watching.on("error", () => {}).resume(), "data");
  }
  await grpcClient().call();
  await expect.poll(() => watchers.filter(({ closed }) => closed).length).toBe(1);
});

describe("an idle gRPC connection", () => {
  const protocolErrors: readonly (readonly [name: string, frame: Buffer])[] = [
    ["headers that cannot be decoded", frame(1, 4, 1, Buffer.alloc(7, 0xff))],
    ["a frame of the wrong size", frame(6, 0, 0, Buffer.alloc(3))],
    ["data on no stream", frame(0, 0, 0, Buffer.alloc(3))],
  ];
  const closings = new Map<string, Promise<unknown>>();
  const sockets: Socket[] = [];

  // They begin together, because each of them takes seconds.
  beforeAll(() => {
    for (const [name, broken] of protocolErrors) {
      const socket = openPlainSocket(app.grpcAddress).resume();
      sockets.push(socket);
      socket.write(Buffer.concat([preface, broken]));
      const closing = once(socket, "close", { signal: AbortSignal.timeout(20_000) });
      closing.catch(() => {}); // reported by its test
      closings.set(name, closing);
    }
  });
  afterAll(() => {
    for (const socket of sockets) socket.destroy();
  });

  it("is closed with GOAWAY after the idle timeout, and its client is served on a new one", async () => {
    const shortIdle = await openTestApp({ limits: { grpcIdleMs: 1_500 } });
    onTestFinished(() => shortIdle.close());
    const { key: validKey } = await createWorkspace(shortIdle.httpUrl);
    const session = openSession(shortIdle);
    const call = (over: ClientHttp2Session) => grpcStatusOf(over.request(callHeaders(rpc, validKey)).end(empty));
    const goaway = once(session, "goaway");
    for (let times = 0; times < 4; times++) {
      expect(await call(session)).toBe(status.OK);
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
    expect(session.closed, "closed although it was in use").toBe(false);
    expect((await goaway)[0]).toBe(constants.NGHTTP2_NO_ERROR);
    await expect.poll(() => session.destroyed).toBe(true);
    expect(await call(openSession(shortIdle))).toBe(status.OK);
  });

  it.each(protocolErrors)("is closed soon after an HTTP/2 protocol error of its client: %s", async (name) => {
    await closings.get(name);
  });

  it("is kept while its client responds", async () => {
    const session = openSession();
    expect(await grpcStatusOf(session.request(callHeaders(rpc, key)).end(empty))).toBe(status.OK);
    await sleep(6_000);
    expect(session.destroyed).toBe(false);
    expect(await grpcStatusOf(session.request(callHeaders(rpc, key)).end(empty))).toBe(status.OK);
  });
});

function openSocket(url: string): Socket {
  return openTestSocket(url).resume();
}

function openSession({ grpcAddress }: TestApp = app): ClientHttp2Session {
  return openTestSession(grpcAddress);
}

/** A client that reuses its connection. */
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
      const [response] = await once(socket, "data", { signal: AbortSignal.timeout(10_000) });
      expect(String(response)).toMatch(/^HTTP\/1\.1 200 /);
    },
  };
}

async function closedConnections(): Promise<number> {
  return total(await readSamples(app), "latchkey_shed_total", { bottleneck: "connections" });
}
