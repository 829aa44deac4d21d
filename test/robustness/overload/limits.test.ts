import { once } from "node:events";
import { type ClientHttp2Session, type ClientHttp2Stream, constants, type Settings } from "node:http2";
import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { create, toBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { ServerReflectionRequestSchema } from "../../../gen/grpc/reflection/v1/reflection_pb.js";
import {
  callHeaders,
  grpcFrame,
  grpcStatusOf,
  openSession as openPlainSession,
} from "../../support/clients/grpc-streams.js";
import { expectError, expectSuccess, send, sendBytes } from "../../support/clients/http-requests.js";
import { resetCalls } from "../../support/clients/http2-frames.js";
import { closed } from "../../support/clients/sockets.js";
import { openTestSession, openTestSocket } from "../../support/clients/test-connections.js";
import { openFileService } from "../../support/file-service.js";

/** The standard limits with shorter timeouts. */
const limits = {
  headersTimeoutMs: 600,
  requestTimeoutMs: 1_200,
  resetBurst: 20,
  resetsPerSecond: 1,
  resetWithinMs: 400,
  maxStreams: 50,
  connectionBytes: 2 ** 21,
  maxHeaders: 90,
};
const rpc = "/latchkey.v1.KeysService/ListKeys";
const reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
/** Requests the descriptor of KeysService, whose response is many times as large. */
const reflectionRequest = grpcFrame(
  Buffer.from(
    toBinary(
      ServerReflectionRequestSchema,
      create(ServerReflectionRequestSchema, {
        messageRequest: { case: "fileContainingSymbol", value: "latchkey.v1.KeysService" },
      }),
    ),
  ),
);

const { app, key } = await openFileService({ limits });

// Other clients are served after each misuse.
afterEach(async () => {
  expectSuccess(await send(app.httpUrl, "/v1/keys.listKeys", { key }));
  const { stream } = openStream({});
  expect(await grpcStatusOf(stream.end(grpcFrame(Buffer.alloc(0))))).toBe(status.OK);
});

describe("the HTTP port", () => {
  it("refuses more headers than its limit, wherever the credential is among them", async () => {
    const many = Object.fromEntries(Array.from({ length: 100 }, (_, index) => [`x-${index}`, "1"]));
    const response = await send(app.httpUrl, "/v1/keys.listKeys", { key, headers: many });
    expect(expectError(response, 413, "application/payload_too_large").detail).toContain("90 headers");
  });

  it("refuses headers of more than 16 KiB, and such a query string", async () => {
    const line = `GET /v1/identities.listIdentities?cursor=${"x".repeat(17_000)} HTTP/1.1`;
    expectError(await sendBytes(app.httpUrl, `${line}\r\nhost: a\r\n\r\n`), 413, "application/payload_too_large");
  });

  it("closes a silent connection without a response", async () => {
    const socket = openSocket(app.httpUrl);
    await closed(socket);
    expect(socket.bytesRead).toBe(0);
  });

  it.each([
    ["headers", "POST /v1/keys.listKeys HTTP/1.1\r\nhost: a\r\nx: "],
    ["body", ""],
  ])("ends a request whose %s arrives a byte at a time with 504", async (_part, begin) => {
    const socket = openSocket(app.httpUrl);
    let received = "";
    socket.setEncoding("latin1").on("data", (chunk) => {
      received += chunk;
    });
    const headers = `authorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: 100000`;
    socket.write(begin || `POST /v1/keys.listKeys HTTP/1.1\r\nhost: a\r\n${headers}\r\n\r\n{`);
    await closed(dripping(socket, " "));
    expect(received).toMatch(/^HTTP\/1\.1 504 .*application\/deadline_exceeded/s);
  });

  it("closes a connection whose client does not read its response", async () => {
    const socket = openSocket(app.httpUrl).pause();
    // More than the socket buffers of the kernel can hold.
    socket.write("GET /docs/swagger-ui.js HTTP/1.1\r\nhost: a\r\n\r\n".repeat(9));
    await sleep(3 * limits.requestTimeoutMs);
    await closed(socket.resume()); // closed before all responses were sent; after them it would be kept
  });

  it("refuses compressed bodies before it decompresses them", async () => {
    const bomb = gzipSync(Buffer.alloc(50 * 2 ** 20));
    const headers = { "content-type": "application/json", "content-encoding": "gzip" };
    const response = await send(app.httpUrl, "/v1/keys.listKeys", { key, headers, body: bomb });
    expectError(response, 415, "application/unsupported_media_type");
    const overConnect = await send(app.httpUrl, rpc, { key, headers, body: bomb });
    expect([overConnect.status, JSON.parse(overConnect.text).code]).toEqual([501, "unimplemented"]);
  });
});

describe("the gRPC port", () => {
  it.each([
    ["more headers than its limit", Object.fromEntries(Array.from({ length: 91 }, (_, index) => [`x-${index}`, "1"]))],
    ["headers of more than 16 KiB", { x: "x".repeat(17_000) }],
  ])("refuses %s", async (_what, headers) => {
    const session = openSession();
    await once(session, "remoteSettings"); // before that, Node's own limits apply
    const stream = session.request(headersOf(headers));
    const error = await once(stream, "error").then(([error]) => error as Error);
    expect(error.message).toMatch(/REFUSED_STREAM|ENHANCE_YOUR_CALM/);
  });

  it("closes a silent connection", async () => {
    await closed(openSocket(`http://${app.grpcAddress}`));
  });

  it("ends a call whose message never ends with DEADLINE_EXCEEDED", async () => {
    const { stream } = openStream({});
    const message = grpcFrame(Buffer.alloc(1_000));
    stream.write(message.subarray(0, 10));
    const dripped = setInterval(() => stream.write("x"), 100);
    onTestFinished(() => clearInterval(dripped));
    expect(await grpcStatusOf(stream)).toBe(status.DEADLINE_EXCEEDED);
  });

  describe("a call that its client leaves open", () => {
    const calls: readonly (readonly [what: string, headers: Record<string, string>, begin: Buffer | undefined])[] = [
      ["a reflection stream with a request", { ":path": reflection }, reflectionRequest],
      ["a call whose deadline has passed", { "grpc-timeout": "100m" }, undefined],
      ["a call with an invalid deadline", { "grpc-timeout": "soon" }, undefined],
      ["a call whose message is too large", {}, Buffer.from([0, 0x7f, 0xff, 0xff, 0xff])],
      ["a call of an unknown method", { ":path": "/nonsense" }, undefined],
    ];
    const sessions: ClientHttp2Session[] = [];
    const endings = new Map<string, Promise<unknown>>();

    // They begin together, because each of them ends only after a timeout.
    beforeAll(() => {
      for (const [what, headers, begin] of calls) {
        const session = openPlainSession(app.grpcAddress);
        sessions.push(session);
        const stream = session.request(headersOf(headers)).on("error", () => {});
        if (begin) stream.write(begin);
        const ending = Promise.all([once(stream, "response"), once(stream.resume(), "close")]);
        ending.catch(() => {}); // reported by its test
        endings.set(what, ending);
      }
    });
    afterAll(() => {
      for (const session of sessions) session.destroy();
    });

    it.each(calls)("is ended: %s", async (what) => {
      await endings.get(what);
    });
  });

  it("ends calls whose responses are not read, but no Health.Watch stream", async () => {
    const session = openSession({ initialWindowSize: 0 });
    const unread = session.request(headersOf({ ":path": reflection }));
    unread.end(reflectionRequest);
    const { stream: watching } = openStream({ ":path": "/grpc.health.v1.Health/Watch" });
    watching.end(grpcFrame(Buffer.alloc(0))).resume();
    await once(unread, "close");
    expect(unread.rstCode).toBe(constants.NGHTTP2_CANCEL);
    expect(watching.closed).toBe(false);
  });

  it("limits the memory of unfinished messages per connection, and accepts calls after its release", async () => {
    const session = openSession();
    await once(session, "remoteSettings");
    const unfinished = grpcFrame(Buffer.alloc(128 * 1024)).subarray(0, -1);
    const statuses = Array.from({ length: 32 }, () => {
      const stream = session.request(headersOf({}));
      stream.write(unfinished);
      return grpcStatusOf(stream);
    });
    // Some are refused because the memory budget is exhausted. The others reach their deadline.
    const ended = await Promise.all(statuses);
    expect(ended.filter((each) => each === status.UNAVAILABLE).length).toBeGreaterThan(0);
    expect(ended.filter((each) => each === status.DEADLINE_EXCEEDED).length).toBeGreaterThan(0);
    const another = session.request(headersOf({}));
    expect(await grpcStatusOf(another.end(grpcFrame(Buffer.alloc(0))))).toBe(status.OK);
  });

  it.each([
    ["with CANCEL", constants.NGHTTP2_CANCEL],
    ["without an error code", constants.NGHTTP2_NO_ERROR],
  ])("disconnects a client that begins calls and resets them at once, %s", async (_how, code) => {
    const socket = openSocket(`http://${app.grpcAddress}`);
    const received: Buffer[] = [];
    socket.on("data", (bytes) => received.push(bytes));
    socket.write(resetCalls(2 * limits.resetBurst, code, key));
    await closed(socket);
    // GOAWAY, the last stream, ENHANCE_YOUR_CALM
    expect(Buffer.concat(received).toString("hex")).toMatch(/000008070000000000[0-9a-f]{8}0000000b/);
  });

  it("disconnects only the client that begins calls and resets all of them a moment later", async () => {
    const other = openSession();
    for (let times = 0; times < 5; times++) {
      const session = openSession();
      await once(session, "remoteSettings");
      const streams = Array.from({ length: 2 * limits.resetBurst }, () => session.request(headersOf({})));
      for (const stream of streams) stream.on("error", () => {});
      await sleep(20);
      for (const stream of streams) stream.close(constants.NGHTTP2_CANCEL);
      await expect.poll(() => session.destroyed, { timeout: 5_000 }).toBe(true);
    }
    expect(await grpcStatusOf(other.request(headersOf({})).end(grpcFrame(Buffer.alloc(0))))).toBe(status.OK);
  });

  it("allows any number of cancellations of calls that the client has waited for", async () => {
    const session = openSession();
    await once(session, "remoteSettings");
    for (let times = 0; times < 2; times++) {
      const streams = Array.from({ length: 2 * limits.resetBurst }, () => session.request(headersOf({})));
      await sleep(limits.resetWithinMs + 100);
      for (const stream of streams) stream.close(constants.NGHTTP2_CANCEL);
      await Promise.all(streams.map((stream) => stream.destroyed || once(stream, "close")));
    }
    const another = session.request(headersOf({}));
    expect(await grpcStatusOf(another.end(grpcFrame(Buffer.alloc(0))))).toBe(status.OK);
  });

  it("allows occasional cancellations", async () => {
    const { session, stream } = openStream({});
    stream.close(constants.NGHTTP2_CANCEL);
    await once(stream, "close");
    const another = session.request(headersOf({}));
    expect(await grpcStatusOf(another.end(grpcFrame(Buffer.alloc(0))))).toBe(status.OK);
  });
});

function openSocket(url: string): Socket {
  return openTestSocket(url).resume();
}

/** Sends a byte every 100 ms. */
function dripping(socket: Socket, byte: string): Socket {
  const dripped = setInterval(() => socket.write(byte), 100);
  socket.once("close", () => clearInterval(dripped));
  return socket;
}

function openSession(settings?: Settings): ClientHttp2Session {
  return openTestSession(app.grpcAddress, settings);
}

function openStream(headers: Record<string, string>): { session: ClientHttp2Session; stream: ClientHttp2Stream } {
  const session = openSession();
  return { session, stream: session.request(headersOf(headers)) };
}

function headersOf(headers: Record<string, string>) {
  return { ...callHeaders(rpc, key), ...headers };
}
