import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
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

it("a response is written directly on an open connection", async () => {
  const response = await receiveRequest();
  expect(writeDirectly(response, call, "{}")).toBe(true);
  expect(response.writableEnded).toBe(true);
});

it("nothing is written after the error response that ends the connection, and the client can read that response", async () => {
  const response = await receiveRequest();
  response.socket?.end("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
  expect(writeDirectly(response, call, "{}")).toBe(false);
  expect(response.socket?.destroyed).toBe(false);
});
