import { once } from "node:events";
import { connect, constants, createServer, type ServerHttp2Stream } from "node:http2";
import { duplexPair } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, it, onTestFinished } from "vitest";
import type { ApiError } from "../../../src/errors.js";
import type { MessageLimits } from "../../../src/grpc/message-reader.js";
import type { OpenStream } from "../../../src/grpc/open-stream.js";
import { limitStreams } from "../../../src/grpc/stream-limits.js";
import { createLog } from "../../../src/observe/log.js";
import { defaultLimits, type Limits } from "../../../src/overload/limits.js";
import { createMemoryBudget } from "../../../src/overload/memory-budget.js";
import { createShedCounter } from "../../../src/overload/shed-counter.js";
import { grpcFrame } from "../../support/clients/grpc-streams.js";

const limits = { maxMessageBytes: 1_024, maxMessages: 1, maxChunks: 10 };
const [first, second] = [grpcFrame(Buffer.from("first")), grpcFrame(Buffer.from("second"))];

// Over TLS, Node sometimes reads a whole request before it emits the stream. Over a connection in JavaScript, it always does.
it.each([
  ["a message", first, true],
  ["the beginning of a message", first.subarray(0, 7), false],
  ["a message and the beginning of another", Buffer.concat([first, second.subarray(0, 7)]), false],
  ["no message", undefined, true],
])("%s that Node reads before it emits the stream is received when the caller is admitted", async (...request) => {
  const [, sentEarly, ends] = request;
  const { client, opened } = openConnection();
  const sent = client.request({ ":method": "POST", ":path": "/" });
  if (ends) sent.end(sentEarly);
  else sent.write(sentEarly);
  const open = await opened();
  expect(open.stream.readableLength, "read before").toBe(sentEarly?.length ?? 0);

  const { received, ended, hasEnded } = readMessages(open);
  const rest = Buffer.concat([first, second]).subarray(sentEarly?.length ?? 0);
  if (!ends) sent.end(rest);
  await sleep(20); // the rest arrives before the caller is admitted
  expect(hasEnded()).toBe(false);
  open.assign("tenant");
  open.admit();
  expect(await ended).toBe(true);
  expect(received).toEqual(ends ? (sentEarly ? ["first"] : []) : ["first", "second"]);
});

it("a message larger than the window of the stream arrives, also if its beginning was read early", async () => {
  const { sent, open, rest } = await sendEarly(grpcFrame(Buffer.alloc(200_000, "x")), 100);

  const { received, ended } = readMessages(open, { ...limits, maxMessageBytes: 200_000, maxChunks: 100 });
  open.reserve(undefined);
  sent.end(rest);
  await sleep(20); // the window is full before the caller is admitted
  open.assign("tenant");
  open.admit();
  expect(await ended).toBe(true);
  expect(received.map(({ length }) => length)).toEqual([200_000]);
});

it.each([
  ["before memory is reserved", () => {}],
  ["later", (open: OpenStream) => open.reserve(undefined)],
])("the rest of a request that is refused %s is read, also if its beginning was read early", async (_when, prepare) => {
  const { sent, open, rest } = await sendEarly(grpcFrame(Buffer.alloc(300_000, "x")), 100);

  readMessages(open, { ...limits, maxMessageBytes: 300_000, maxChunks: 100 });
  prepare(open);
  const finished = once(sent, "finish");
  sent.end(rest);
  await sleep(20); // the window is full before the caller is refused
  open.discard();
  await finished;
});

it("a client that is not admitted sends no more than the window of the stream, also if Node has read its beginning", async () => {
  const { sent, open, rest, memory } = await sendEarly(grpcFrame(Buffer.alloc(1_000_000, "x")), 100);

  readMessages(open, { ...limits, maxMessageBytes: 1_000_000, maxChunks: 1_000 });
  open.reserve(undefined);
  sent.end(rest);
  // Node sends one more window update, for what arrives until it stops reading.
  await expect.poll(() => memory.reserved).toBeGreaterThan(64 * 1_024);
  await sleep(50);
  expect(memory.reserved).toBeLessThan(3 * 64 * 1_024);
});

it("the chunks that arrive before the caller is admitted are limited, also if Node has read the first ones early", async () => {
  const { client, opened } = openConnection();
  const sent = client.request({ ":method": "POST", ":path": "/" });
  const refused = new Promise<ApiError>((refuse) => {
    sent.write(first.subarray(0, 1));
    void opened().then(async (open) => {
      expect(open.stream.readableLength, "read before").toBe(1);
      open.refuse = refuse;
      readMessages(open);
      for (const byte of grpcFrame(Buffer.alloc(20)).subarray(1))
        await new Promise((next) => sent.write(Buffer.of(byte), next));
      await sleep(20);
      open.assign("tenant");
      open.admit();
    });
  });
  expect((await refused).message).toContain("arrives in more than 10 chunks");
});

it("grpc-js gets only complete messages, also if Node has read the beginning of one early", async () => {
  const { sent, open, rest } = await sendEarly(first, 7);
  const { stream } = open;
  open.reserve(undefined);
  open.readMessages(limits);
  expect(open.admit()).toBe(true);
  expect(stream.readableLength).toBe(0);
  const chunks: Buffer[] = [];
  stream.on("data", (chunk) => chunks.push(chunk as Buffer));
  sent.end(rest);
  await once(stream, "end");
  expect(chunks).toEqual([first]);
});

it("the client of a bidirectional stream has the request timeout to read its end, however old the stream is", async () => {
  const { client, opened } = openConnection({ requestTimeoutMs: 1_500 });
  client.request({ ":method": "POST", ":path": "/" });
  const open = await opened();
  open.assign("tenant");
  open.markBidirectional();
  readMessages(open);
  open.admit();
  open.stream.respond();
  await sleep(1_600);
  open.markEnded();
  open.discard();
  await sleep(1_200); // timeouts are checked every second
  expect(open.stream.rstCode).toBe(constants.NGHTTP2_NO_ERROR);
});

/** Opens a stream, of whose request Node has read this many bytes before it emits the stream. */
async function sendEarly(request: Buffer, bytes: number) {
  const { client, opened, memory } = openConnection();
  const sent = client.request({ ":method": "POST", ":path": "/" });
  sent.write(request.subarray(0, bytes));
  const open = await opened();
  expect(open.stream.readableLength, "read before").toBe(bytes);
  return { sent, open, memory, rest: request.subarray(bytes) };
}

/** Reads the messages of a stream, as the handler of a call does. */
function readMessages(open: OpenStream, messageLimits: MessageLimits = limits) {
  const received: string[] = [];
  let hasEnded = false;
  const ended = new Promise<boolean>((resolve) => {
    open.readMessages(messageLimits, {
      message: (framed) => received.push(`${framed.subarray(5)}`),
      end(isComplete) {
        hasEnded = true;
        resolve(isComplete);
      },
    });
  });
  return { received, ended, hasEnded: () => hasEnded };
}

/** An HTTP/2 connection whose streams are limited. */
function openConnection(overrides: Partial<Limits> = {}) {
  const [clientSide, serverSide] = duplexPair();
  const server = createServer();
  const memory = createMemoryBudget(defaultLimits, createShedCounter(createLog("silent")));
  const connection = { lastUsedAt: 0, authenticated: false, isBusy: () => true, close: () => {} };
  const limitedStreams = limitStreams({ ...defaultLimits, ...overrides }, memory, { of: () => connection });
  server.on("session", limitedStreams.begin);
  server.emit("connection", serverSide);
  const client = connect("http://localhost", { createConnection: () => clientSide });
  onTestFinished(() => {
    client.destroy();
    limitedStreams.end();
  });
  const stream = once(server, "stream");
  return {
    client,
    memory,
    /** The first stream of the client, once the service sees it. */
    async opened(): Promise<OpenStream> {
      const [opened] = (await stream) as [ServerHttp2Stream];
      return limitedStreams.of(opened) ?? expect.fail("the stream is closed");
    },
  };
}
