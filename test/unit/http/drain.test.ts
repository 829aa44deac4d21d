import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import { fastify } from "fastify";
import { expect, it, onTestFinished } from "vitest";
import { drainOnClose } from "../../../src/http/drain.js";

const hour = 3_600_000;

it.each([
  ["could not listen", true],
  ["was listening", false],
])("graceful shutdown of a server that %s leaves no timer behind", async (_case, portTaken) => {
  const before = activeTimers();
  const server = fastify({ serverFactory: (handler) => createServer(handler) });
  drainOnClose(server, { lingerMs: hour, drainMs: hour });
  const listening = server.listen({ host: "127.0.0.1", port: portTaken ? await takenPort() : 0 });
  if (portTaken) await expect(listening).rejects.toThrow("EADDRINUSE");
  else await listening;
  await server.close();
  await expect.poll(activeTimers).toBeLessThanOrEqual(before);
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
