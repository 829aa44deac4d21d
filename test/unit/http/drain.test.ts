import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect, createServer as createTcpServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { fastify } from "fastify";
import { expect, it, onTestFinished } from "vitest";
import { drainOnClose } from "../../../src/http/drain.js";
import { createLog } from "../../../src/observe/log.js";

const hour = 3_600_000;

it.each([
  ["could not listen", true],
  ["was listening", false],
])("graceful shutdown of a server that %s leaves no timer behind", async (_case, portTaken) => {
  const before = activeTimers();
  const server = fastify({ serverFactory: (handler) => createServer(handler) });
  drainOnClose(server, { lingerMs: hour, drainMs: hour, log: createLog("silent") });
  const listening = server.listen({ host: "127.0.0.1", port: portTaken ? await takenPort() : 0 });
  if (portTaken) await expect(listening).rejects.toThrow("EADDRINUSE");
  else await listening;
  await server.close();
  await expect.poll(activeTimers).toBeLessThanOrEqual(before);
});

it("graceful shutdown closes a connection whose request never ends, and logs its client", async () => {
  const lines: string[] = [];
  const log = createLog("warn", { destination: { write: (line) => lines.push(line) } });
  const server = fastify({ serverFactory: (handler) => createServer(handler) });
  const received = new Promise<void>((resolve) => {
    server.get("/", () => {
      resolve();
      return new Promise(() => {});
    });
  });
  drainOnClose(server, { lingerMs: 0, drainMs: 200, log });
  await server.listen({ host: "127.0.0.1", port: 0 });
  const client = connect((server.server.address() as AddressInfo).port, "127.0.0.1").on("error", () => {});
  const closed = once(client.resume(), "close");
  client.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  await received;
  const address = `127.0.0.1:${client.localPort}`;
  await server.close();
  await closed;
  expect(lines.map((line) => JSON.parse(line))).toEqual([
    expect.objectContaining({
      msg: "the graceful shutdown took too long; closing connections with unfinished requests",
      connections: 1,
      clients: [address],
    }),
  ]);
});

it("graceful shutdown does not cut off a response that the client is still reading", async () => {
  const server = fastify({ serverFactory: (handler) => createServer(handler) });
  const body = Buffer.alloc(64 * 2 ** 20); // more than the buffers of both sockets
  server.get("/", (_request, reply) => reply.send(body));
  drainOnClose(server, { lingerMs: 0, drainMs: hour, log: createLog("silent") });
  await server.listen({ host: "127.0.0.1", port: 0 });
  const client = connect((server.server.address() as AddressInfo).port, "127.0.0.1").on("error", () => {});
  client.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const [first] = await once(client, "data");
  client.pause();
  const closed = server.close();
  await sleep(200);
  let received = first.length;
  client.on("data", (chunk) => {
    received += chunk.length;
  });
  const ended = once(client.resume(), "close");
  await closed;
  await ended;
  expect(received).toBeGreaterThan(body.length);
});

/** The number of active timers in this process. */
function activeTimers(): number {
  return process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
}

async function takenPort(): Promise<number> {
  const server = createTcpServer().listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}
