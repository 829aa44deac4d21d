import { once } from "node:events";
import { connect, createServer, type ServerHttp2Stream } from "node:http2";
import { duplexPair } from "node:stream";
import { expect, it, onTestFinished } from "vitest";
import { limitStreams } from "../../../src/grpc/stream-limits.js";
import { createLog } from "../../../src/observe/log.js";
import { defaultLimits } from "../../../src/overload/limits.js";
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
  const { server, client, limitedStreams } = openConnection();
  const opened = once(server, "stream");
  const sent = client.request({ ":method": "POST", ":path": "/" });
  if (ends) sent.end(sentEarly);
  else sent.write(sentEarly);
  const [stream] = (await opened) as [ServerHttp2Stream];
  expect(stream.readableLength, "read before").toBe(sentEarly?.length ?? 0);

  const open = limitedStreams.of(stream) ?? expect.fail("the stream is closed");
  const received: string[] = [];
  const ended = new Promise<boolean>((end) => {
    open.readMessages(limits, { message: (framed) => received.push(`${framed.subarray(5)}`), end });
  });
  const rest = Buffer.concat([first, second]).subarray(sentEarly?.length ?? 0);
  if (!ends) sent.end(rest);
  await new Promise((next) => setTimeout(next, 20)); // the rest arrives before the caller is admitted
  expect(received).toEqual([]);
  open.assign("tenant");
  open.admit();
  expect(await ended).toBe(true);
  expect(received).toEqual(ends ? (sentEarly ? ["first"] : []) : ["first", "second"]);
});

/** An HTTP/2 connection whose streams are limited. */
function openConnection() {
  const [clientSide, serverSide] = duplexPair();
  const server = createServer();
  const memory = createMemoryBudget(defaultLimits, createShedCounter(createLog("silent")));
  const connection = { lastUsedAt: 0, authenticated: false, isBusy: () => true, close: () => {} };
  const limitedStreams = limitStreams(defaultLimits, memory, { of: () => connection });
  server.on("session", limitedStreams.begin);
  server.emit("connection", serverSide);
  const client = connect("http://localhost", { createConnection: () => clientSide });
  onTestFinished(() => {
    client.destroy();
    limitedStreams.end();
  });
  return { server, client, limitedStreams };
}
