import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { mintId } from "../ids.js";
import { clientHost, listenError } from "../net/address.js";
import type { Log } from "../observe/log.js";
import type { Metrics } from "../observe/metrics.js";
import { limitConnections } from "../overload/connections.js";
import { type Limits, timeoutCheckIntervalMs } from "../overload/limits.js";
import { watchConnections } from "./connections.js";
import { closeAndStopParsing } from "./internals.js";
import { jsonHeaders, successBody, successMembers } from "./json/envelope.js";
import { recordResponse } from "./response-in-flight.js";
import { urlPathOf } from "./shed.js";

/** Only a few clients scrape and probe at the same time. Idle connections of others must not keep the probes out. */
const maxConnections = 32;

/** What the metrics port serves. */
export interface MetricsSources {
  metrics(): Promise<Metrics>;
  /** The state of the service. Rejects if the service is not ready. */
  readiness(): Promise<Readonly<Record<string, string>>>;
}

/**
 * Serves the metrics on a port of its own, because callers of the service must not see them. It also serves the probes,
 * without TLS: a kubelet has no client certificate. Clients of this port are limited, too: a scrape costs more than a
 * call, so each connection serves one request.
 */
export async function openMetricsServer(
  { metrics, readiness }: MetricsSources,
  host: string,
  port: number,
  log: Log,
  limits: Pick<Limits, "headersTimeoutMs" | "requestTimeoutMs" | "keepAliveMs" | "maxHeaderBytes">,
) {
  // Set explicitly: at maxRequestsPerSocket, Node sets it too, but then leaves closing to the client.
  const close = { connection: "close" };
  const plainText = { "content-type": "text/plain", ...close };

  const routes: Readonly<Record<string, (response: ServerResponse) => Promise<void>>> = {
    "/metrics": async (response) => {
      const read = await metrics();
      const body = await read.metrics();
      response.writeHead(200, { "content-type": read.contentType, ...close }).end(body);
    },
    "/livez": async (response) => sendState(response, { status: "alive" }),
    "/readyz": async (response) => {
      const state = await readiness().catch((error: Error) => {
        log.info({ reason: error.message }, "a probe on the metrics port found that the service is not ready");
        return undefined;
      });
      if (state !== undefined) sendState(response, state);
      else response.writeHead(503, plainText).end("The service is not ready.\n");
    },
  };

  function sendState(response: ServerResponse, state: Readonly<Record<string, string>>): void {
    response.writeHead(200, { ...jsonHeaders, ...close }).end(successBody(mintId("req"), successMembers(state)));
  }

  async function respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = urlPathOf(request.url ?? "");
    const route = Object.hasOwn(routes, path) ? routes[path] : undefined;
    if (route !== undefined) await route(response);
    else response.writeHead(404, plainText).end("The metrics are at /metrics, the probes at /livez and /readyz.\n");
  }

  const settings = {
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.keepAliveMs,
    connectionsCheckingInterval: timeoutCheckIntervalMs,
    maxHeaderSize: limits.maxHeaderBytes,
  };
  const server = createServer(settings, (request, response) => {
    const { socket } = request;
    // Node itself limits the requests of a connection only for HTTP/1.1.
    if (response.socket === null) return closeAndStopParsing(socket);
    recordResponse(request, response);
    // `server.timeout` is not enough: each byte that the client reads extends it.
    const timer = setTimeout(() => socket.destroy(), limits.requestTimeoutMs).unref();
    response.once("close", () => clearTimeout(timer));
    respond(request, response).catch((error) => {
      log.error({ err: error }, "cannot read the metrics");
      response.writeHead(500, plainText).end("Cannot read the metrics; the cause is in the log.\n");
    });
  });
  server.timeout = limits.requestTimeoutMs;
  server.maxRequestsPerSocket = 1;
  watchConnections(server, limitConnections(server, maxConnections));
  server.listen(port, host);
  await once(server, "listening").catch(listenError("METRICS_PORT", host, port, "METRICS_HOST"));
  return {
    url: `http://${clientHost(host)}:${(server.address() as AddressInfo).port}/metrics`,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
