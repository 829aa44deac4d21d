import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { clientHost, listenError } from "../net/address.js";
import type { Log } from "../observe/log.js";
import type { Metrics } from "../observe/metrics.js";
import { type Limits, timeoutCheckIntervalMs } from "../overload/limits.js";

/** More than a few do not scrape at once. */
const mostConnections = 32;

/**
 * Serves the metrics, and nothing else, on a port of its own: they are not for the callers of the service. Whoever reaches
 * it is limited all the same: a page costs more than a call, so there is one for each connection.
 */
export async function openMetricsServer(
  read: () => Promise<Metrics>,
  host: string,
  port: number,
  log: Log,
  limits: Pick<Limits, "headersTimeoutMs" | "requestTimeoutMs" | "keepAliveMs" | "maxHeaderBytes">,
) {
  // Said by us: at maxRequestsPerSocket, Node says so too, and then leaves it to the client to close.
  const close = { connection: "close" };
  const plain = { "content-type": "text/plain", ...close };
  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.url?.replace(/\?.*$/s, "") !== "/metrics") {
      response.writeHead(404, plain).end("The metrics are at /metrics.\n");
      return;
    }
    const metrics = await read();
    const page = await metrics.metrics();
    response.writeHead(200, { "content-type": metrics.contentType, ...close }).end(page);
  }
  const settings = {
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.keepAliveMs,
    connectionsCheckingInterval: timeoutCheckIntervalMs,
    maxHeaderSize: limits.maxHeaderBytes,
  };
  const server = createServer(settings, (request, response) => {
    answer(request, response).catch((error) => {
      log.error({ err: error }, "the metrics cannot be read");
      response.writeHead(500, plain).end("The metrics cannot be read; the log says why.\n");
    });
  });
  server.timeout = limits.requestTimeoutMs;
  server.maxRequestsPerSocket = 1;
  server.maxConnections = mostConnections;
  server.listen(port, host);
  await once(server, "listening").catch(listenError("METRICS_PORT", host, port));
  return {
    url: `http://${clientHost(host)}:${(server.address() as AddressInfo).port}/metrics`,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
