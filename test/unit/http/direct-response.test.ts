import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { setImmediate } from "node:timers/promises";
import { afterEach, beforeEach, expect, it, onTestFinished, vi } from "vitest";
import { createDirectWriter } from "../../../src/http/direct-response.js";

const writeDirectly = createDirectWriter({ keepAliveMs: 72_000 });
const call = { requestId: "req_1", responseHeaders: undefined };

/** Sends a request, and returns its response before anything is written to it. */
async function receiveRequest(): Promise<ServerResponse> {
  const server = createServer();
  onTestFinished(() => void server.close());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  onTestFinished(() => void client.destroy());
  client.write("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
  const [, response] = await once(server, "request");
  return response;
}

/** How long a response waits for others. */
const maxWaitMs = 0.5;

/** The time of this process, which stands still unless a test changes it. */
let now = 1_000;
beforeEach(() => void vi.spyOn(performance, "now").mockImplementation(() => now));
afterEach(() => void vi.restoreAllMocks());

const isWritten = (response: ServerResponse) => response.writableEnded;

it("the responses of one turn of the event loop are written at its end", async () => {
  const responses = [await receiveRequest(), await receiveRequest()];
  for (const response of responses) expect(writeDirectly(response, call, "{}")).toBe(true);
  expect(responses.map(isWritten)).toEqual([false, false]);
  await setImmediate();
  expect(responses.map(isWritten)).toEqual([true, true]);
});

it("in a long turn of the event loop, responses are written as soon as the first has waited for half a millisecond", async () => {
  const responses = await Promise.all(Array.from({ length: 4 }, receiveRequest));
  const waits = [0, maxWaitMs / 2, maxWaitMs, 2 * maxWaitMs];
  const begin = now;
  responses.forEach((response, index) => {
    now = begin + (waits[index] as number);
    writeDirectly(response, call, "{}");
  });
  expect(responses.map(isWritten)).toEqual([true, true, true, false]);
  await setImmediate();
  expect(responses.every(isWritten)).toBe(true);
});

it.each(["before", "while it waits for the end of the turn"])(
  "a response is not written to a connection that an error response has ended %s, and the client can read that response",
  async (when) => {
    const response = await receiveRequest();
    const { socket } = response;
    const refuse = () => socket?.end("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    if (when === "before") refuse();
    expect(writeDirectly(response, call, "{}")).toBe(when !== "before");
    if (when !== "before") refuse();
    await setImmediate();
    expect(socket?.destroyed).toBe(false);
    expect(socket?.errored).toBe(null);
  },
);

it("a connection that closes while its response waits does not prevent the others", async () => {
  const [closed, open] = [await receiveRequest(), await receiveRequest()];
  for (const response of [closed, open]) writeDirectly(response, call, "{}");
  closed.socket?.destroy();
  await setImmediate();
  expect([closed, open].map(isWritten)).toEqual([false, true]);
});
