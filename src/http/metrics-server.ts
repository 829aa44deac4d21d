import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { clientHost, listenError } from "../net/address.js";
import type { Log } from "../observe/log.js";
import type { Metrics } from "../observe/metrics.js";
import { type Limits, timeoutCheckIntervalMs } from "../overload/limits.js";

/** Only a few clients scrape at the same time. */
const maxConnections = 32;

/**
 * Serves only the metrics, on a port of its own, because callers of the service must not see them. Clients of this port
 * are limited too: a scrape costs more than a call, so each connection serves one request.
 */
export async function openMetricsServer(
  read: () => Promise<Metrics>,
  host: string,
  port: number,
  log: Log,
  limits: Pick<Limits, "headersTimeoutMs" | "requestTimeoutMs" | "keepAliveMs" | "maxHeaderBytes">,
) {
  // Set explicitly: at maxRequestsPerSocket, Node sets it too, but then leaves closing to the client.
  const close = { connection: "close" };
  const plainText = { "content-type": "text/plain", ...close };
  async function respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.url?.replace(/\?.*$/s, "") !== "/metrics") {
      response.writeHead(404, plainText).end("The metrics are at /metrics.\n");
      return;
    }
    const metrics = await read();
    const body = await metrics.metrics();
    response.writeHead(200, { "content-type": metrics.contentType, ...close }).end(body);
  }
  const settings = {
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.keepAliveMs,
    connectionsCheckingInterval: timeoutCheckIntervalMs,
    maxHeaderSize: limits.maxHeaderBytes,
  };
  const server = createServer(settings, (request, response) => {
    respond(request, response).catch((error) => {
      log.error({ err: error }, "cannot read the metrics");
      response.writeHead(500, plainText).end("Cannot read the metrics; the cause is in the log.\n");
    });
  });
  server.timeout = limits.requestTimeoutMs;
  server.maxRequestsPerSocket = 1;
  server.maxConnections = maxConnections;
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
