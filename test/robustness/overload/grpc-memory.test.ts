import { once } from "node:events";
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect as connectHttp2,
  constants,
  createServer,
  type Settings,
} from "node:http2";
import type { AddressInfo, Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { queryObjects } from "node:v8";
import { create, toBinary } from "@bufbuild/protobuf";
import { type Client, type ServiceError, status } from "@grpc/grpc-js";
import { describe, expect, it, onTestFinished } from "vitest";
import { ServerReflectionRequestSchema } from "../../../gen/grpc/reflection/v1/reflection_pb.js";
import { VerifyKeyRequestSchema } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { defaultLimits } from "../../../src/overload/limits.js";
import { maxMessageBytes } from "../../../src/rpc/pipeline.js";
import { callUnary, openGrpcJs } from "../../support/clients/grpc-js.js";
import { callHeaders, grpcFrame, grpcStatusOf } from "../../support/clients/grpc-streams.js";
import { headersOf } from "../../support/clients/headers.js";
import { createWorkspace, expectSuccess, send } from "../../support/clients/http-requests.js";
import { endCall, framesByStream, openCalls } from "../../support/clients/http2-frames.js";
import { openSocket } from "../../support/clients/sockets.js";
import { openTestSocket } from "../../support/clients/test-connections.js";
import { openFileService } from "../../support/file-service.js";
import { openTestApp } from "../../support/harness.js";
import { readSamples, total } from "../../support/metric-samples.js";

const rpc = "/latchkey.v1.KeysService/ListKeys";
const check = "/grpc.health.v1.Health/Check";
const watch = "/grpc.health.v1.Health/Watch";
const reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const empty = grpcFrame(Buffer.alloc(0));
/** A message of the maximum size, which consists of one unknown field. */
const large = grpcFrame(
  Buffer.concat([Buffer.from([0xfa, 0x3f, 0xfa, 0xff, 0x07]), Buffer.alloc(maxMessageBytes - 6)]),
);
/** An unknown field of 10,000 bytes. */
const tenThousand = Buffer.concat([Buffer.from([0xfa, 0x3f, 0x90, 0x4e]), Buffer.alloc(10_000)]);
/** The maximum of calls in flight on a gRPC connection. */
const maxInFlight = defaultLimits.maxStreams;

/** The socket of each session. Node does not allow to reset it through the session. */
const socketOf = new WeakMap<ClientHttp2Session, Socket>();
/** While set, the service behaves as overloaded. */
let busy = false;
const { app, key } = await openFileService({ metricsPort: 0, guard: { accepts: () => !busy } });

describe("a call with an invalid credential", () => {
  it.each([
    ["wrong format", "lk_wrong"],
    ["unknown key", "lk_7Hq2yJ0000000000000000000000000000"],
  ])(
    "(%s) is refused after its headers, before its message arrives, and reserves no memory for it",
    async (_, wrong) => {
      const session = openSession();
      const before = await reserved();
      const streams = Array.from({ length: 50 }, () => session.request(callHeaders(rpc, wrong)));
      const statuses = streams.map(async (stream) => {
        const responded = once(stream.resume(), "response");
        stream.write(large.subarray(0, 50_000));
        return (await responded)[0]["grpc-status"];
      });
      expect(new Set(await Promise.all(statuses))).toEqual(new Set([String(status.UNAUTHENTICATED)]));
      expect((await reserved()) - before).toBeLessThan(streams.length * 50_000);
      // The service does not keep refused streams open.
      await Promise.all(streams.map((stream) => stream.closed || once(stream, "close")));
    },
  );
});

describe("a message", () => {
  it("is read in pieces of any size, up to the maximum message size", async () => {
    expect(await grpcStatusOf(callInPieces(grpcFrame(Buffer.alloc(500, "\x80\x01")), 1))).toBe(status.INVALID_ARGUMENT);
    expect(await grpcStatusOf(callInPieces(empty, 1))).toBe(status.OK);
    expect(await grpcStatusOf(callInPieces(large, 1_000))).toBe(status.OK);
  });

  it("is refused if it arrives in too many pieces, or exceeds the maximum message size", async () => {
    expect(await grpcStatusOf(callInPieces(large.subarray(0, 4_000), 1))).toBe(status.INVALID_ARGUMENT);
    const larger = grpcFrame(Buffer.alloc(maxMessageBytes + 1));
    expect(await grpcStatusOf(callInPieces(larger.subarray(0, 1_000), 1_000))).toBe(status.RESOURCE_EXHAUSTED);
  });
});

describe("the memory of the calls on one connection", () => {
  it("is limited for unfinished messages, also in tiny pieces, and is released when the connection ends", async () => {
    const before = await reserved();
    const session = openSession();
    await once(session, "remoteSettings");
    const streams = Array.from({ length: 150 }, () => session.request(callHeaders(rpc, key)));
    const refused: unknown[] = [];
    for (const stream of streams) {
      stream.on("response", (headers) => refused.push(headers["grpc-status"]));
      stream.on("error", () => {}).resume();
      for (let at = 0; at < 128; at++) stream.write(large.subarray(at, at + 1));
      stream.write(large.subarray(128, -1));
    }
    await expect.poll(() => refused.length, { timeout: 20_000 }).toBeGreaterThan(50);
    expect(new Set(refused)).toEqual(new Set([String(status.UNAVAILABLE)]));
    expect((await reserved()) - before).toBeLessThanOrEqual(defaultLimits.connectionBytes);
    expect((await reserved()) - before).toBeGreaterThan(defaultLimits.connectionBytes / 2);
    expect(await callGrpc(large)).toBe(status.OK);
    session.destroy();
    await expect.poll(reserved, { timeout: 10_000 }).toBeLessThanOrEqual(before);
  });

  it("is limited for unread responses: the next one is shed before it is buffered", async () => {
    const { key: largeKey } = await createWorkspace(app.httpUrl);
    const meta = { a: Array(8_188).fill(1) }; // a hundred thousand bytes of protobuf
    const body = JSON.stringify({ name: "large", meta });
    const jsonHeaders = { "content-type": "application/json" };
    for (let keys = 0; keys < 12; keys++)
      expectSuccess(await send(app.httpUrl, "/v2/keys.createKey", { key: largeKey, headers: jsonHeaders, body }));
    let pageBytes = 0;
    const read = openSession().request(callHeaders(rpc, largeKey)).end(empty);
    read.on("data", ({ length }) => {
      pageBytes += length;
    });
    expect(await grpcStatusOf(read)).toBe(status.OK);

    const before = await reserved();
    const session = openSession({ initialWindowSize: 0 });
    const fit = Math.floor(defaultLimits.connectionBytes / pageBytes);
    for (let pages = 0; pages < fit + 5; pages++) {
      const stream = session.request(callHeaders(rpc, largeKey)).end(empty);
      stream.on("error", () => {});
      const [headers] = await once(stream, "response");
      expect(headers["grpc-status"], `page ${pages}`).toBe(pages < fit ? undefined : String(status.UNAVAILABLE));
    }
    expect((await reserved()) - before).toBeLessThanOrEqual(defaultLimits.connectionBytes);
    session.destroy();
    await expect.poll(reserved, { timeout: 10_000 }).toBeLessThanOrEqual(before);
  });

  it("is released after partial messages, resets, unread responses and broken connections", async () => {
    const before = await reserved();
    for (let round = 0; round < 4; round++) {
      const session = openSession(round % 2 ? { initialWindowSize: 0 } : {});
      for (let calls = 0; calls < 40; calls++) {
        const path = [rpc, check, watch, reflection, "/nonsense"][calls % 5] as string;
        const stream = session.request(callHeaders(path, calls % 3 ? key : "lk_wrong"));
        stream.on("error", () => {}).resume();
        if (calls % 4 === 0) stream.end(empty);
        else if (calls % 4 === 1) stream.write(large.subarray(0, 70_000));
        else if (calls % 4 === 2) stream.write(Buffer.from([1, 0, 0]));
        if (calls % 7 === 0) setTimeout(() => stream.close(constants.NGHTTP2_CANCEL), 5 * round);
      }
      await sleep(20 * round);
      if (round % 2) session.destroy();
      else socketOf.get(session)?.resetAndDestroy();
    }
    await expect.poll(reserved, { timeout: 10_000 }).toBeLessThanOrEqual(before);
  });
});

it("a call beyond the memory budget is UNAVAILABLE for grpc-js, and small calls are served", async () => {
  const small = await openTestApp({ limits: { totalBytes: 2 ** 16, tenantBytes: 2 ** 20 } });
  onTestFinished(() => small.close());
  const { key } = await createWorkspace(small.httpUrl);
  const client = openGrpcJs(small.grpcAddress);
  onTestFinished(() => client.close());
  expect(await unary(client, key, empty)).toBeUndefined();
  const errors = await Promise.all(Array.from({ length: 20 }, () => unary(client, key, large)));
  // These arrive completely, and would be answered at once if the budget were not checked first.
  const filled = [toBinary(VerifyKeyRequestSchema, create(VerifyKeyRequestSchema, { key })), tenThousand];
  const verify = () => unary(client, key, grpcFrame(Buffer.concat(filled)), "/latchkey.v1.KeysService/VerifyKey");
  errors.push(...(await Promise.all(Array.from({ length: 100 }, verify))));
  const failed = errors.filter((error) => error !== undefined);
  expect(failed.length).toBeGreaterThan(10);
  expect(new Set(failed.map(({ code }) => code))).toEqual(new Set([status.UNAVAILABLE]));
  for (const { metadata } of failed) expect(metadata.get("grpc-status-details-bin")).toHaveLength(1);
  // A refused stream uses memory until its client has ended it.
  await expect.poll(() => unary(client, key, empty), { timeout: 10_000 }).toBeUndefined();
});

describe("streams that need no credential", () => {
  it("are limited per connection: more are refused, and those of another connection are served", async () => {
    const session = openSession();
    await once(session, "remoteSettings");
    const watchers = Array.from({ length: defaultLimits.maxPublicStreams }, () => open(session, watch).end(empty));
    await Promise.all(watchers.map((stream) => once(stream.resume(), "data")));
    expect(await grpcStatusOf(open(session, watch).end(empty))).toBe(status.RESOURCE_EXHAUSTED);
    const other = open(openSession(), watch).end(empty);
    await once(other.resume(), "data");
    watchers[0]?.close();
    await once(watchers[0] as ClientHttp2Stream, "close");
    expect(await grpcStatusOf(open(session, check).end(empty))).toBe(status.OK);
  });

  it("have a smaller maximum message size", async () => {
    expect(await grpcStatusOf(open(openSession(), reflection).end(large))).toBe(status.RESOURCE_EXHAUSTED);
    expect(await grpcStatusOf(open(openSession(), check).end(large))).toBe(status.RESOURCE_EXHAUSTED);
  });
});

it("refused streams that their clients do not end are reset at once beyond a share of the memory budget", async () => {
  const small = await openTestApp({ limits: { tenantBytes: 64 * 1_024, smallBytes: 0 } });
  onTestFinished(() => small.close());
  const session = connectHttp2(`http://${small.grpcAddress}`).on("error", () => {});
  onTestFinished(() => session.destroy());
  await once(session, "remoteSettings");
  const streams = Array.from({ length: 100 }, () => session.request(callHeaders(rpc, "lk_wrong")));
  for (const stream of streams) stream.on("error", () => {}).resume();
  await Promise.all(streams.map((stream) => once(stream, "response")));
  const startedAt = performance.now();
  await expect.poll(() => streams.filter(({ closed }) => closed).length, { interval: 5 }).toBeGreaterThanOrEqual(90);
  expect(performance.now() - startedAt, "not reset before those within the budget").toBeLessThan(900);
  await expect.poll(() => streams.filter(({ closed }) => closed).length, { timeout: 10_000 }).toBe(100);
});

it.each([
  ["too many without credential", watch, "", status.RESOURCE_EXHAUSTED],
  ["an invalid credential", rpc, "lk_wrong", status.UNAUTHENTICATED],
  ["overload", rpc, "lk_wrong", status.UNAVAILABLE],
  ["an unknown method", "/none/Such", "", status.UNIMPLEMENTED],
])("refused streams (%s) are garbage collected while their connection stays open", async (_, path, wrong, code) => {
  const session = openSession();
  await once(session, "remoteSettings");
  const watchers = Array.from({ length: defaultLimits.maxPublicStreams }, () => open(session, watch).end(empty));
  await Promise.all(watchers.map((stream) => once(stream.resume(), "data")));
  const before = await streamsInMemory();
  busy = code === status.UNAVAILABLE;
  onTestFinished(() => {
    busy = false;
  });
  const begin = () => session.request(callHeaders(path, wrong)).on("error", () => {});
  const refused = await Promise.all(Array.from({ length: 200 }, () => grpcStatusOf(begin().end(empty))));
  expect(new Set(refused)).toEqual(new Set([code]));
  await expect.poll(streamsInMemory, { interval: 200, timeout: 10_000 }).toBeLessThan(before + 20);
});

describe("a reflection stream", () => {
  it("is limited to a number of requests, and the next is RESOURCE_EXHAUSTED", async () => {
    const stream = open(openSession(), reflection);
    const ended = grpcStatusOf(stream);
    stream.write(Buffer.concat(Array(defaultLimits.maxReflectionRequests).fill(listServices)));
    let bytes = 0;
    stream.on("data", (piece) => {
      bytes += piece.length;
    });
    stream.end(Buffer.concat(Array(3_000).fill(listServices)));
    expect(await ended).toBe(status.RESOURCE_EXHAUSTED);
    const one = open(openSession(), reflection).end(listServices);
    const [response] = await once(one, "data");
    expect(bytes).toBe(defaultLimits.maxReflectionRequests * response.length);
  });

  it("is shed at its next request while the process is overloaded", async () => {
    const stream = open(openSession(), reflection);
    const ended = grpcStatusOf(stream);
    stream.write(listServices);
    await once(stream, "data");
    busy = true;
    onTestFinished(() => {
      busy = false;
    });
    stream.write(listServices);
    expect(await ended).toBe(status.UNAVAILABLE);
  });
});

it("reflection can be disabled", async () => {
  const without = await openTestApp({ grpcReflection: false });
  onTestFinished(() => without.close());
  const session = connectHttp2(`http://${without.grpcAddress}`);
  onTestFinished(() => session.destroy());
  expect(await grpcStatusOf(open(session, reflection).end(listServices))).toBe(status.UNIMPLEMENTED);
});

describe("the calls in flight on one gRPC connection", () => {
  it("are limited to 250: the next one waits until one ends, and other connections do not", async () => {
    const session = openSession();
    await once(session, "remoteSettings");
    const inFlight = Array.from({ length: maxInFlight }, () => session.request(callHeaders(rpc, key)));
    const next = session.request(callHeaders(rpc, key)).end(empty);
    const nextStatus = grpcStatusOf(next);
    for (let others = 0; others < 5; others++) {
      expect(await callGrpc(empty)).toBe(status.OK);
    }
    expect(next.closed, "served although 250 are in flight").toBe(false);
    for (const stream of inFlight.slice(0, 3)) {
      expect(await grpcStatusOf(stream.end(empty))).toBe(status.OK);
    }
    expect(await nextStatus).toBe(status.OK);
  });

  it("are limited to 250: the next one is refused if its client does not wait, and the others are served", async () => {
    const socket = openTestSocket(app.grpcAddress);
    const received: Buffer[] = [];
    socket.on("data", (bytes) => received.push(bytes));
    const frames = () => framesByStream(Buffer.concat(received));
    socket.write(openCalls(maxInFlight + 1, key));
    const refused = 2 * maxInFlight + 1;
    await expect.poll(() => frames().get(refused)).toEqual([`reset ${constants.NGHTTP2_REFUSED_STREAM}`]);
    expect([...frames().keys()]).toEqual([refused]);
    socket.write(endCall(1));
    await expect.poll(() => frames().get(1)).toContain("frame 1");
  });
});

/** The number of HTTP/2 server streams in this process after a garbage collection. */
async function streamsInMemory(): Promise<number> {
  ServerStream ??= await serverStreamClass();
  return queryObjects(ServerStream, { format: "count" });
}

let ServerStream: (new () => object) | undefined;

/** Returns the class of server streams, which Node does not export. */
async function serverStreamClass(): Promise<new () => object> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const session = connectHttp2(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  session.request().on("error", () => {});
  const [stream] = await once(server, "stream");
  session.destroy();
  server.close();
  return stream.constructor;
}

/** A request for the names of all services. */
const listServices = grpcFrame(
  Buffer.from(
    toBinary(
      ServerReflectionRequestSchema,
      create(ServerReflectionRequestSchema, { messageRequest: { case: "listServices", value: "" } }),
    ),
  ),
);

/** A call whose message is sent in DATA frames of `size` bytes. */
function callInPieces(message: Buffer, size: number): ClientHttp2Stream {
  const stream = openSession().request(callHeaders(rpc, key));
  stream.on("error", () => {});
  void (async () => {
    for (let at = 0; at < message.length && !stream.destroyed; at += size) {
      const sent = new Promise((resolve) => stream.write(message.subarray(at, at + size), resolve));
      await sent;
    }
    stream.end();
  })();
  return stream;
}

async function unary(client: Client, key: string, message: Buffer, path = rpc): Promise<ServiceError | undefined> {
  return (await callUnary(client, path, headersOf(key), message.subarray(5))).error;
}

async function callGrpc(message: Buffer): Promise<number> {
  const session = openSession();
  const found = await grpcStatusOf(session.request(callHeaders(rpc, key)).end(message));
  session.destroy();
  return found;
}

/** Opens a stream of a service that needs no credential. */
function open(session: ClientHttp2Session, path: string): ClientHttp2Stream {
  const { authorization: _, ...headers } = callHeaders(path, "");
  return session.request(headers).on("error", () => {});
}

function openSession(settings: Settings = {}): ClientHttp2Session {
  const socket = openSocket(app.grpcAddress);
  // The client buffers more unsent bytes than Node allows by default.
  const options = { settings, createConnection: () => socket, maxSessionMemory: 100 };
  const session = connectHttp2(`http://${app.grpcAddress}`, options);
  session.on("error", () => {});
  socketOf.set(session, socket);
  onTestFinished(() => session.destroy());
  return session;
}

async function reserved(): Promise<number> {
  return total(await readSamples(app), "latchkey_memory_reserved_bytes");
}
