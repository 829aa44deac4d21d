import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, createServer as createPort } from "node:net";
import { fastify } from "fastify";
import { expect, it, onTestFinished } from "vitest";
import { drainOnClose } from "../../../src/http/drain.js";

const hour = 3_600_000;

it.each([
  ["could not listen", true],
  ["has listened", false],
])("a server that %s leaves no timer behind", async (_what, taken) => {
  const before = timers();
  const server = fastify({ serverFactory: (handler) => createServer(handler) });
  drainOnClose(server, { lingerMs: hour, drainMs: hour });
  const listening = server.listen({ host: "127.0.0.1", port: taken ? await takenPort() : 0 });
  if (taken) await expect(listening).rejects.toThrow("EADDRINUSE");
  else await listening;
  await server.close();
  await expect.poll(timers).toBeLessThanOrEqual(before);
});

/** How many timers keep this process. */
function timers(): number {
  return process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
}

async function takenPort(): Promise<number> {
  const server = createPort().listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}
