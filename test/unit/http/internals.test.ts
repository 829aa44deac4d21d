import { once } from "node:events";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, it, onTestFinished, vi } from "vitest";
import { assertInternals, writeEncoded } from "../../../src/http/internals.js";

it("this Node has the internals that are used", () => {
  expect(assertInternals).not.toThrow();
});

it("an encoded response is sent as it is, and the connection serves the next request", async () => {
  const encoded = Buffer.from("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\nno");
  const finished: ServerResponse[] = [];
  const port = await listening(
    createServer((_request, response) => {
      response.once("finish", () => finished.push(response));
      writeEncoded(response, encoded);
    }),
  );
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  for (let sent = 1; sent <= 2; sent += 1) {
    socket.write("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
    const [received] = (await once(socket, "data")) as [Buffer];
    expect(received).toEqual(encoded);
    expect(finished).toHaveLength(sent);
  }
});

it("an encoded response is finished when the kernel has accepted all of it, and not before", async () => {
  const body = "x".repeat(32 * 2 ** 20);
  const events: string[] = [];
  const port = await listening(
    createServer((_request, response) => {
      response.once("finish", () => events.push("finished"));
      events.push("written");
      writeEncoded(response, `HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}`, "latin1");
    }),
  );
  const socket = connect(port, "127.0.0.1").pause();
  onTestFinished(() => void socket.destroy());
  socket.write("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
  await vi.waitFor(() => expect(events).toEqual(["written"]), { timeout: 10_000 });
  await sleep(100);
  expect(events).toEqual(["written"]);
  socket.resume();
  await vi.waitFor(() => expect(events).toEqual(["written", "finished"]), { timeout: 10_000 });
});

async function listening(server: Server): Promise<number> {
  onTestFinished(() => void server.close());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}
