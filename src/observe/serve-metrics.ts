import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { cannotListen, reachable } from "../listening.js";
import type { Metrics } from "./metrics.js";

/** Serves the metrics, and nothing else, on a port of its own: they are not for the callers of the service. */
export async function serveMetrics(read: () => Promise<Metrics>, host: string, port: number) {
  const server = createServer(async (request, response) => {
    if (request.url?.replace(/\?.*$/s, "") !== "/metrics") {
      response.writeHead(404, { "content-type": "text/plain" }).end("The metrics are at /metrics.\n");
      return;
    }
    const metrics = await read();
    response.writeHead(200, { "content-type": metrics.contentType }).end(await metrics.metrics());
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
