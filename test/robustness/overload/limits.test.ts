import { once } from "node:events";
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect as connectHttp2,
  constants,
  type Settings,
} from "node:http2";
import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { create, toBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { ServerReflectionRequestSchema } from "../../../gen/grpc/reflection/v1/reflection_pb.js";
import { ask, createWorkspace, expectFailure, expectSuccess, sendBytes } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { callHeaders, callsTakenBack, grpcStatusOf, prefixed } from "./bare-grpc.js";

/** The same limits as always, with less patience. */
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
/** Asks for the file of our keys, whose answer is many times as long. */
const question = prefixed(
  Buffer.from(
    toBinary(
      ServerReflectionRequestSchema,
      create(ServerReflectionRequestSchema, {
        messageRequest: { case: "fileContainingSymbol", value: "latchkey.v1.KeysService" },
      }),
    ),
  ),
);

let app: TestApp;
let key: string;
beforeAll(async () => {
  app = await openTestApp({ limits });
  key = (await createWorkspace(app.httpUrl)).key;
});
afterAll(() => app.close());

// Whatever a client has done, others are served.
afterEach(async () => {
  expectSuccess(await ask(app.httpUrl, "/v1/keys.listKeys", { key }));
  const { stream } = openStream({});
  expect(await grpcStatusOf(stream.end(prefixed(Buffer.alloc(0))))).toBe(status.OK);
});

describe("the HTTP port", () => {
  it("refuses more headers than it takes, wherever among them the credential is", async () => {
    const many = Object.fromEntries(Array.from({ length: 100 }, (_, index) => [`x-${index}`, "1"]));
    const answer = await ask(app.httpUrl, "/v1/keys.listKeys", { key, headers: many });
    expect(expectFailure(answer, 413, "application/payload_too_large").detail).toContain("90 headers");
  });

  it("refuses a head of more than 16 KiB, and a query as long", async () => {
    const line = `GET /v1/identities.listIdentities?cursor=${"x".repeat(17_000)} HTTP/1.1`;
    expectFailure(await sendBytes(app.httpUrl, `${line}\r\nhost: a\r\n\r\n`), 413, "application/payload_too_large");
  });

  it("ends a connection on which nothing comes, without a word", async () => {
    const socket = openSocket(app.httpUrl);
    await closed(socket);
    expect(socket.bytesRead).toBe(0);
  });

  it.each([
    ["head", "POST /v1/keys.listKeys HTTP/1.1\r\nhost: a\r\nx: "],
    ["body", ""],
  ])("ends a request whose %s comes a byte at a time, with an answer", async (_part, begin) => {
    const socket = openSocket(app.httpUrl);
    let came = "";
    socket.setEncoding("latin1").on("data", (chunk) => {
      came += chunk;
    });
    const head = `authorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: 100000`;
    socket.write(begin || `POST /v1/keys.listKeys HTTP/1.1\r\nhost: a\r\n${head}\r\n\r\n{`);
    await closed(dripping(socket, " "));
    expect(came).toMatch(/^HTTP\/1\.1 504 .*application\/deadline_exceeded/s);
  });

  it("ends a connection whose client does not read its answer", async () => {
    const socket = openSocket(app.httpUrl).pause();
    // More than the kernel keeps for a reader who may yet come.
    socket.write("GET /docs/swagger-ui.js HTTP/1.1\r\nhost: a\r\n\r\n".repeat(9));
    await sleep(3 * limits.requestTimeoutMs);
    await closed(socket.resume()); // without all of the answers: after those it would be kept
  });

  it("refuses compressed bodies, before they are unpacked", async () => {
    const bomb = gzipSync(Buffer.alloc(50 * 2 ** 20));
    const headers = { "content-type": "application/json", "content-encoding": "gzip" };
    const answer = await ask(app.httpUrl, "/v1/keys.listKeys", { key, headers, body: bomb });
    expectFailure(answer, 415, "application/unsupported_media_type");
    const overConnect = await ask(app.httpUrl, rpc, { key, headers, body: bomb });
    expect([overConnect.status, JSON.parse(overConnect.text).code]).toEqual([501, "unimplemented"]);
  });
});

describe("the gRPC port", () => {
  it.each([
    ["more headers than it takes", Object.fromEntries(Array.from({ length: 91 }, (_, index) => [`x-${index}`, "1"]))],
    ["a head of more than 16 KiB", { x: "x".repeat(17_000) }],
  ])("refuses %s", async (_what, headers) => {
    const session = openSession();
    await once(session, "remoteSettings"); // before that, Node's own limits hold
    const stream = session.request(headersOf(headers));
    const error = await once(stream, "error").then(([error]) => error as Error);
    expect(error.message).toMatch(/REFUSED_STREAM|ENHANCE_YOUR_CALM/);
  });

  it("ends a connection on which nothing comes", async () => {
    await closed(openSocket(`http://${app.grpcAddress}`));
  });

  it("ends a call whose message never ends, with an answer", async () => {
    const { stream } = openStream({});
    const message = prefixed(Buffer.alloc(1_000));
    stream.write(message.subarray(0, 10));
    const dripped = setInterval(() => stream.write("x"), 100);
    onTestFinished(() => clearInterval(dripped));
    expect(await grpcStatusOf(stream)).toBe(status.DEADLINE_EXCEEDED);
  });

  it.each([
    ["questions, some answered", { ":path": reflection }, question],
    ["a call whose deadline has passed", { "grpc-timeout": "100m" }, undefined],
    ["a call with a deadline that is none", { "grpc-timeout": "soon" }, undefined],
    ["a call whose message is too large", {}, Buffer.from([0, 0x7f, 0xff, 0xff, 0xff])],
    ["a call of what there is not", { ":path": "/nonsense" }, undefined],
  ])("ends %s, that its client leaves open", async (_what, headers, begin) => {
    const { stream } = openStream(headers);
    stream.on("error", () => {});
    if (begin) stream.write(begin);
    const answered = once(stream, "response");
    stream.resume();
    await once(stream, "close");
    await answered;
  });

  it("ends calls whose answers are not read, and no client who waits for news of our health", async () => {
    const session = openSession({ initialWindowSize: 0 });
    const unread = session.request(headersOf({ ":path": reflection }));
    unread.end(question);
    const { stream: waiting } = openStream({ ":path": "/grpc.health.v1.Health/Watch" });
    waiting.end(prefixed(Buffer.alloc(0))).resume();
    await once(unread, "close");
    expect(unread.rstCode).toBe(constants.NGHTTP2_CANCEL);
    expect(waiting.closed).toBe(false);
  });

  it("holds only so much of what a client has not finished, and takes more when that is gone", async () => {
    const session = openSession();
    await once(session, "remoteSettings");
    const unfinished = prefixed(Buffer.alloc(128 * 1024)).subarray(0, -1);
    const statuses = Array.from({ length: 32 }, () => {
      const stream = session.request(headersOf({}));
      stream.write(unfinished);
      return grpcStatusOf(stream);
    });
    // For some there is no memory, and they are told so. The others have been there all the time, and are late at last.
    const ended = await Promise.all(statuses);
    expect(ended.filter((each) => each === status.UNAVAILABLE).length).toBeGreaterThan(0);
    expect(ended.filter((each) => each === status.DEADLINE_EXCEEDED).length).toBeGreaterThan(0);
    const another = session.request(headersOf({}));
    expect(await grpcStatusOf(another.end(prefixed(Buffer.alloc(0))))).toBe(status.OK);
  });

  it.each([
    ["as cancelled", constants.NGHTTP2_CANCEL],
    ["as if nothing were", constants.NGHTTP2_NO_ERROR],
  ])("sends a client away that begins calls and takes them back, %s", async (_how, code) => {
    const socket = openSocket(`http://${app.grpcAddress}`);
    const came: Buffer[] = [];
    socket.on("data", (bytes) => came.push(bytes));
    socket.write(callsTakenBack(2 * limits.resetBurst, code, key));
    await closed(socket);
    // GOAWAY, the last stream, ENHANCE_YOUR_CALM
    expect(Buffer.concat(came).toString("hex")).toMatch(/000008070000000000[0-9a-f]{8}0000000b/);
  });

  it("sends a client away, and nobody else, that begins calls and takes them all back a moment later", async () => {
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
    expect(await grpcStatusOf(other.request(headersOf({})).end(prefixed(Buffer.alloc(0))))).toBe(status.OK);
  });

  it("lets a client take back what it has waited for, however often: its deadlines have passed", async () => {
    const session = openSession();
    await once(session, "remoteSettings");
    for (let times = 0; times < 2; times++) {
      const streams = Array.from({ length: 2 * limits.resetBurst }, () => session.request(headersOf({})));
      await sleep(limits.resetWithinMs + 100);
      for (const stream of streams) stream.close(constants.NGHTTP2_CANCEL);
      await Promise.all(streams.map((stream) => stream.destroyed || once(stream, "close")));
    }
    const another = session.request(headersOf({}));
    expect(await grpcStatusOf(another.end(prefixed(Buffer.alloc(0))))).toBe(status.OK);
  });

  it("lets a client take back a call now and then", async () => {
    const { session, stream } = openStream({});
    stream.close(constants.NGHTTP2_CANCEL);
    await once(stream, "close");
    const another = session.request(headersOf({}));
    expect(await grpcStatusOf(another.end(prefixed(Buffer.alloc(0))))).toBe(status.OK);
  });
});

function openSocket(url: string): Socket {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.on("error", () => {});
  socket.resume();
  onTestFinished(() => void socket.destroy());
  return socket;
}

/** A client that goes on, slowly. */
function dripping(socket: Socket, byte: string): Socket {
  const dripped = setInterval(() => socket.write(byte), 100);
  socket.once("close", () => clearInterval(dripped));
  return socket;
}

async function closed(socket: Socket): Promise<void> {
  if (!socket.closed) await once(socket, "close");
}

function openSession(settings: Settings = {}): ClientHttp2Session {
  const session = connectHttp2(`http://${app.grpcAddress}`, { settings });
  session.on("error", () => {});
  onTestFinished(() => session.destroy());
  return session;
}

function openStream(headers: Record<string, string>): { session: ClientHttp2Session; stream: ClientHttp2Stream } {
  const session = openSession();
  return { session, stream: session.request(headersOf(headers)) };
}

function headersOf(headers: Record<string, string>) {
  return { ...callHeaders(rpc, key), ...headers };
}
