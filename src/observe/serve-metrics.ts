import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { cannotListen, reachable } from "../listening.js";
import type { Log } from "./log.js";
import type { Metrics } from "./metrics.js";

/** Serves the metrics, and nothing else, on a port of its own: they are not for the callers of the service. */
export async function serveMetrics(read: () => Promise<Metrics>, host: string, port: number, log: Log) {
  const plain = { "content-type": "text/plain" };
  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.url?.replace(/\?.*$/s, "") !== "/metrics") {
      response.writeHead(404, plain).end("The metrics are at /metrics.\n");
      return;
    }
    const metrics = await read();
    const page = await metrics.metrics();
    response.writeHead(200, { "content-type": metrics.contentType }).end(page);
  }
  const server = createServer((request, response) => {
    answer(request, response).catch((error) => {
      log.error({ err: error }, "the metrics cannot be read");
      response.writeHead(500, plain).end("The metrics cannot be read; the log says why.\n");
    });
  });
  server.listen(port, host);
  await once(server, "listening").catch(cannotListen("METRICS_PORT", host, port));
  return {
    url: `http://${reachable(host)}:${(server.address() as AddressInfo).port}/metrics`,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
