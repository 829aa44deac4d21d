import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { setImmediate } from "node:timers/promises";
import { expect, it, onTestFinished } from "vitest";
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

/** As many responses as fit into one batch. */
const maxBatch = 8;

const isWritten = (response: ServerResponse) => response.writableEnded;

it("the responses of one turn of the event loop are written at its end", async () => {
  const responses = [await receiveRequest(), await receiveRequest()];
  for (const response of responses) expect(writeDirectly(response, call, "{}")).toBe(true);
  expect(responses.map(isWritten)).toEqual([false, false]);
  await setImmediate();
  expect(responses.map(isWritten)).toEqual([true, true]);
});

it("responses are written before the end of the turn when a batch is full", async () => {
  const responses = await Promise.all(Array.from({ length: maxBatch + 1 }, receiveRequest));
  for (const response of responses) writeDirectly(response, call, "{}");
  expect(responses.map(isWritten)).toEqual([...Array(maxBatch).fill(true), false]);
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
