import { connect as connectHttp2 } from "node:http2";
import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { createLog } from "../../../src/observe/log.js";
import { callHeaders, grpcFrame, grpcStatusOf } from "../../support/clients/grpc-streams.js";
import {
  createWorkspace,
  expectError,
  expectSuccess,
  type HttpResponse,
  post,
  send,
  sendBytes,
} from "../../support/clients/http-requests.js";
import { closed, openSocket as openConnection } from "../../support/clients/sockets.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { readSamples, total } from "../../support/metric-samples.js";

const mebibyte = 2 ** 20;
/** A total budget that a few clients below exceed. */
const limits = { totalBytes: 16 * mebibyte, tenantBytes: 4 * mebibyte };
/** A valid request of 100 KiB, most of it white space. */
const largeJson = `{${" ".repeat(100 * 1024)}}`;
const listKeys = ["/v1/keys.listKeys", "/latchkey.v1.KeysService/ListKeys"] as const;
/** The largest response that needs no credential, more than 1 MiB. */
const largeFile = "/docs/swagger-ui.js";

interface Line {
  readonly msg: string;
  readonly method?: string;
  readonly code?: string;
  readonly requestId?: string;
}

let app: TestApp;
let first: { workspaceId: string; key: string };
let second: { workspaceId: string; key: string };
const lines: Line[] = [];
const sockets: Socket[] = [];

beforeAll(async () => {
  const log = createLog("info", { destination: { write: (line) => lines.push(JSON.parse(line)) } });
  app = await openTestApp({ limits, metricsPort: 0, log });
  first = await createWorkspace(app.httpUrl);
  second = await createWorkspace(app.httpUrl);
});
afterAll(() => app.close());

// After each test, nothing is reserved once its clients are gone, and large requests of both tenants are served.
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await expect.poll(reserved, { timeout: 10_000 }).toBe(0);
  for (const { key } of [first, second]) {
    for (const path of listKeys) expect((await sendJson(path, key, largeJson)).status).toBe(200);
  }
});

it.each([
  ["HTTP/JSON", "/v2/keys.createKey", { error: { status: 503 } }],
  ["Connect", "/latchkey.v1.KeysService/CreateKey", { code: "unavailable" }],
])("an error response that finds no memory is replaced by a short one of the same protocol (%s)", async (...args) => {
  const [, path, expected] = args;
  const full = await openTestApp({ limits: { totalBytes: 1, smallBytes: 0 } });
  onTestFinished(() => full.close());
  const { key } = await createWorkspace(full.httpUrl);
  const unknownFields = Object.fromEntries(Array.from({ length: 10 }, (_, n) => [`${n}`.padEnd(380, "x"), 1]));
  const response = await post(full.httpUrl, path, key, unknownFields);
  expect(response.status).toBe(503);
  expect(JSON.parse(response.text)).toMatchObject(expected);
});

describe("pipelined requests", () => {
  it("are answered in order, however long each takes", async () => {
    const slow = request("/v2/identities.createIdentity", { externalId: "first of several" });
    const requests = [
      slow,
      requestHeaders("GET", "/livez"),
      requestHeaders("GET", "/nothing"),
      slow,
      requestHeaders("GET", "/nothing", close),
    ];
    const { status, text } = await sendBytes(app.httpUrl, requests.join(""));
    const others = [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, code]) => Number(code));
    expect([status, ...others]).toEqual([200, 200, 404, 409, 404]);
  });

  it("are answered in order, also before bytes that are not HTTP", async () => {
    const { status, text } = await sendBytes(
      app.httpUrl,
      `${requestHeaders("GET", "/livez").repeat(3)}nonsense\r\n\r\n`,
    );
    expect(status).toBe(200);
    expect(text.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 200", "HTTP/1.1 200", "HTTP/1.1 400"]);
  });

  it("close their connection if there are too many, and only few of them are started", async () => {
    const page = "/api-reference/errors-v2/service";
    const startedCalls = () => lines.filter(({ method }) => method === `GET ${page}`).length;
    const before = startedCalls();
    const socket = openSocket();
    socket.write(requestHeaders("GET", page).repeat(1_000));
    await closed(socket);
    expect(startedCalls() - before).toBeLessThanOrEqual(9);
  });

  it.each([
    ["HTTP/JSON", "/v2/keys.deleteKey", "/v2/identities.createIdentity"],
    ["Connect", "/latchkey.v1.KeysService/DeleteKey", "/latchkey.v1.IdentitiesService/CreateIdentity"],
  ])(
    "are not started before the previous response, nor after their connection was closed (%s)",
    async (name, slow, create) => {
      const { keyId } = await createKey();
      const unlock = await lockKey(keyId);
      const externalId = `after a slow call over ${name}`;
      const before = lines.length;
      const socket = openSocket();
      socket.write(request(slow, { keyId }) + request(create, { externalId }));
      await sleep(300);
      expect(await identityCount(externalId)).toBe(0);
      socket.destroy();
      await expect.poll(() => linesSince(before).filter(({ code }) => code === "cancelled")).toHaveLength(1);
      await unlock();
      await sleep(300);
      expect(await identityCount(externalId)).toBe(0);
      // Each call that ran has one log line.
      expect(linesSince(before)).toHaveLength(1);
    },
  );
});

describe("the memory budget of a client", () => {
  it("counts about the bytes of a body, however small its chunks are", async () => {
    const clients = Array.from({ length: 50 }, () => openSocket());
    for (const socket of clients) {
      socket.write(requestHeaders("POST", "/v1/keys.listKeys", `${credential()}transfer-encoding: chunked\r\n`));
    }
    await sleep(500);
    const before = usedMemory();
    for (const socket of clients) socket.write("1\r\n \r\n".repeat(2_000));
    await sleep(1_500);
    expect((usedMemory() - before) / (clients.length * 2_000)).toBeLessThan(100);
  });

  it("excludes bodies in too many chunks: they are refused", async () => {
    const begin = requestHeaders("POST", "/v1/keys.listKeys", `${credential()}transfer-encoding: chunked\r\n${close}`);
    const inChunks = (count: number) =>
      sendBytes(app.httpUrl, `${begin}${"1\r\n \r\n".repeat(count)}2\r\n{}\r\n0\r\n\r\n`);
    expectSuccess(await inChunks(1_000));
    const { errors } = expectError(await inChunks(2_100), 400, "application/invalid_input");
    expect(errors.map(({ location }) => location)).toEqual(["body"]);
  });

  it.each(listKeys)("is limited per tenant: more is shed, and other tenants are served (%s)", async (path) => {
    const length = `content-length: ${largeJson.length}\r\n`;
    for (let clients = 0; clients < 60; clients++) {
      openSocket().write(requestHeaders("POST", path, `${credential()}${length}`) + largeJson.slice(0, -1));
    }
    await expect.poll(reserved, { timeout: 10_000 }).toBeGreaterThan(limits.tenantBytes / 2);
    const before = await shed();
    const refused = await sendJson(path, first.key, largeJson);
    expect(refused.status).toBe(503);
    expect(refused.headers["retry-after"]).toMatch(/^\d+$/);
    expect(await shed()).toBeGreaterThan(before);
    expect((await sendJson(path, first.key, "{}")).status).toBe(200);
    expect((await sendJson(path, second.key, largeJson)).status).toBe(200);
    expect(await reserved()).toBeLessThanOrEqual(limits.totalBytes);
  });

  it("is limited for all clients without a credential together, like one tenant: tenants are served", async () => {
    for (let clients = 0; clients < 12; clients++)
      openSocket().pause().write(requestHeaders("GET", largeFile).repeat(9));
    await expect.poll(reserved, { timeout: 10_000 }).toBeGreaterThan(mebibyte);
    expect(await reserved()).toBeLessThanOrEqual(limits.tenantBytes);
    for (const path of listKeys) expect((await sendJson(path, first.key, largeJson)).status).toBe(200);
    expect((await send(app.httpUrl, "/livez", { method: "GET" })).status).toBe(200);
  });

  it("covers responses: one that exceeds it is shed with Retry-After", async () => {
    const small = await openTestApp({ limits: { tenantBytes: 50 * 1024 } });
    onTestFinished(() => small.close());
    const { key } = await createWorkspace(small.httpUrl);
    for (let count = 0; count < 4; count++) {
      const identity = { externalId: `user_${count}`, meta: { text: "x".repeat(15_000) } };
      expectSuccess(await post(small.httpUrl, "/v2/identities.createIdentity", key, identity));
    }
    const list = (limit: number) => post(small.httpUrl, "/v2/identities.listIdentities", key, { limit });
    const refused = await list(4);
    const { detail } = expectError(refused, 503, "application/service_unavailable");
    expect(detail).toContain("no memory for this one");
    expect(refused.headers["retry-after"]).toMatch(/^\d+$/);
    const connect = await post(small.httpUrl, "/latchkey.v1.IdentitiesService/ListIdentities", key, { limit: 4 });
    expect([connect.status, JSON.parse(connect.text).code]).toEqual([503, "unavailable"]);
    expectSuccess(await list(1));
  });
});

describe("bytes after a request that is not HTTP", () => {
  it("are not read while an earlier response is unread", async () => {
    const socket = openSocket().pause();
    socket.write(`${requestHeaders("GET", largeFile).repeat(4)}nonsense\r\n\r\n`);
    await sleep(300);
    // Many times what the socket buffers of the kernel can hold.
    const junk = Buffer.alloc(mebibyte, "x");
    for (let count = 0; count < 64; count++) socket.write(junk);
    await sleep(1_500);
    expect(socket.writableLength).toBeGreaterThan(32 * mebibyte);
  });
});

describe("when clients without a credential have used up their budget,", () => {
  beforeEach(async () => {
    for (let clients = 0; clients < 6; clients++)
      openSocket().pause().write(requestHeaders("GET", largeFile).repeat(9));
    await expect.poll(reserved, { timeout: 10_000 }).toBeGreaterThan(limits.tenantBytes / 2);
  });

  it("a tenant's response that is not read at once is sent completely", async () => {
    for (let count = 0; count < 90; count++) {
      const identity = { externalId: `large_${count}`, meta: { text: "x".repeat(15_000) } };
      const { status } = await post(app.httpUrl, "/v2/identities.createIdentity", second.key, identity);
      expect([200, 409]).toContain(status);
    }
    const body = "{}";
    const headers = `authorization: Bearer ${second.key}\r\ncontent-type: application/json\r\n${close}`;
    const socket = openSocket().pause();
    socket.write(
      requestHeaders("POST", "/v2/identities.listIdentities", `${headers}content-length: ${body.length}\r\n`) + body,
    );
    await sleep(500);
    let text = "";
    socket.setEncoding("latin1").on("data", (chunk) => {
      text += chunk;
    });
    await closed(socket.resume());
    const [, length] = /content-length: (\d+)/i.exec(text) ?? [];
    expect(Number(length), text.slice(0, 1_000)).toBeGreaterThan(mebibyte);
    expect(text.length - text.indexOf("\r\n\r\n") - 4).toBe(Number(length));
  });

  it("health checks are answered, and so are callers whose keys are not cached", async () => {
    const session = connectHttp2(`http://${app.grpcAddress}`).on("error", () => {});
    onTestFinished(() => session.destroy());
    const empty = grpcFrame(Buffer.alloc(0));
    const send = (path: string, key: string) => grpcStatusOf(session.request(callHeaders(path, key)).end(empty));
    expect(await send("/grpc.health.v1.Health/Check", "")).toBe(0);
    const made = await post(app.httpUrl, "/v2/keys.createKey", first.key, { scopes: ["keys.read"] });
    const { key } = expectSuccess(made) as { key: string };
    expect(await send("/latchkey.v1.KeysService/ListKeys", key)).toBe(0);
  });
});

describe("a response", () => {
  it("that is not read closes its connection after the timeout, although its client continues to send", async () => {
    const timeoutMs = 2_000;
    const shortTimeout = await openTestApp({ limits: { headersTimeoutMs: timeoutMs, requestTimeoutMs: timeoutMs } });
    onTestFinished(() => shortTimeout.close());
    const socket = openSocket(shortTimeout.httpUrl).pause();
    // More than the socket buffers of the kernel can hold, and then headers that do not end.
    socket.write(`${requestHeaders("GET", largeFile).repeat(7)}GET /livez HTTP/1.1\r\nx: `);
    const dripped = setInterval(() => socket.write("x"), 200);
    onTestFinished(() => clearInterval(dripped));
    await expect.poll(() => socket.closed, { timeout: 10 * timeoutMs }).toBe(true);
  });

  it("that is read in time is sent completely, however large it is", async () => {
    const { length } = (await send(app.httpUrl, largeFile, { method: "GET" })).text;
    const { text } = await sendBytes(
      app.httpUrl,
      requestHeaders("GET", largeFile).repeat(8) + requestHeaders("GET", largeFile, close),
    );
    expect(text.length).toBeGreaterThan(9 * length);
  });
});

it("clients that pipeline, disconnect, reset or do not read leave no memory reserved (HTTP, Connect)", async () => {
  const actions = [
    (socket: Socket, path: string) => socket.write(request(path, {}).repeat(9)),
    (socket: Socket) => socket.pause().write(requestHeaders("GET", largeFile).repeat(9)),
    (socket: Socket, path: string) =>
      socket.write(requestHeaders("POST", path, `${credential()}content-length: 90000\r\n`) + "x".repeat(50_000)),
    (socket: Socket, path: string) =>
      socket.write(
        `${request(path, {})}${requestHeaders("POST", path, `${credential()}content-length: 90000\r\n`)}${"x".repeat(90_000)}`,
      ),
    (socket: Socket, path: string) =>
      socket.write(
        `${requestHeaders("POST", path, `${credential()}transfer-encoding: chunked\r\n`)}${"5\r\nxxxxx\r\n".repeat(1_500)}`,
      ),
    // After a call that waits for a lease.
    (socket: Socket, path: string) =>
      socket.write(
        request("/v2/keys.deleteKey", { keyId: "key_01jd9wzr3xfg2tq5d0v8m1c7ha" }) +
          requestHeaders("POST", path, `${credential()}content-length: 90000\r\n`) +
          "x".repeat(90_000),
      ),
    (socket: Socket) => socket.write(requestHeaders("GET", "/livez").repeat(200)),
  ];
  const ends = [
    (socket: Socket) => socket.destroy(),
    (socket: Socket) => socket.resetAndDestroy(),
    (socket: Socket) => socket.end(),
  ];
  for (let round = 0; round < 5; round++) {
    for (const act of actions) {
      for (const path of listKeys) {
        for (const [index, end] of ends.entries()) {
          const socket = openSocket();
          act(socket, path);
          setTimeout(() => end(socket), (index * 40 + round * 30) % 150);
        }
      }
    }
    await sleep(250);
    for (const socket of sockets) socket.destroy();
  }
});

const close = "connection: close\r\n";

function credential(): string {
  return `authorization: Bearer ${first.key}\r\ncontent-type: application/json\r\n`;
}

function requestHeaders(method: string, path: string, more = ""): string {
  return `${method} ${path} HTTP/1.1\r\nhost: a\r\n${more}\r\n`;
}

function request(path: string, json: unknown): string {
  const body = JSON.stringify(json);
  return requestHeaders("POST", path, `${credential()}content-length: ${body.length}\r\n`) + body;
}

function sendJson(path: string, key: string, body: string): Promise<HttpResponse> {
  return send(app.httpUrl, path, { key, headers: { "content-type": "application/json" }, body });
}

function openSocket(url = app.httpUrl): Socket {
  const socket = openConnection(url).resume();
  sockets.push(socket);
  return socket;
}

async function reserved(): Promise<number> {
  return total(await readSamples(app), "latchkey_memory_reserved_bytes");
}

async function shed(): Promise<number> {
  return total(await readSamples(app), "latchkey_shed_total", { bottleneck: "memory" });
}

/** The memory use after a garbage collection. */
function usedMemory(): number {
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

function linesSince(index: number): Line[] {
  return lines.slice(index).filter(({ msg }) => msg === "call");
}

async function createKey(): Promise<{ keyId: string }> {
  return expectSuccess(await post(app.httpUrl, "/v2/keys.createKey", first.key, {})) as { keyId: string };
}

/** Locks the row of the key, so that changes of it wait until it is unlocked. */
async function lockKey(keyId: string): Promise<() => Promise<void>> {
  const sql = openSql(app.databaseUrl, { max: 1, onnotice: () => {} });
  const connection = await sql.reserve();
  await connection`begin`;
  await connection`select from keys where key_id = ${keyId} for update`;
  return async () => {
    await connection`rollback`;
    connection.release();
    await sql.end();
  };
}

async function identityCount(externalId: string): Promise<number> {
  const sql = openSql(app.databaseUrl, { max: 1, onnotice: () => {} });
  const [row] = await sql`select count(*)::int from identities where external_id = ${externalId}`;
  await sql.end();
  return row?.["count"];
}
