import { createServer, type RequestListener, type Server, type ServerOptions, type ServerResponse } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { Certificates } from "../net/certificates.js";
import { type Limits, timeoutCheckIntervalMs } from "../overload/limits.js";

/** Makes the server of the HTTP port: encrypted, if there are certificates. */
export function createHttpServer(
  listener: RequestListener,
  certificates: Certificates | undefined,
  limits: Limits,
  Response: typeof ServerResponse,
): Server {
  const settings: ServerOptions = {
    ServerResponse: Response,
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.keepAliveMs,
    connectionsCheckingInterval: timeoutCheckIntervalMs,
    maxHeaderSize: limits.maxHeaderBytes,
    requireHostHeader: false, // refused by ourselves, with the envelope
  };
  const server = certificates
    ? createEncrypted(listener, certificates, settings, limits)
    : createServer(settings, listener);
  // Node would leave out what comes beyond 2,000. All are read, and too many are refused.
  server.maxHeadersCount = 0;
  // So long may a connection stand still in a call. The longest call takes a third of it; the rest do not read their answer.
  server.timeout = limits.requestTimeoutMs;
  return server;
}

/**
 * For a year, browsers do not ask this host without encryption, where somebody else could answer in its place. Not for its
 * subdomains: those are not ours to decide about.
 */
const onlyEncrypted = "max-age=31536000";

/** It presents the certificates of the moment to every new connection. */
function createEncrypted(
  listener: RequestListener,
  certificates: Certificates,
  settings: ServerOptions,
  { handshakeTimeoutMs: handshakeMs }: Limits,
): Server {
  const { current, clients } = certificates;
  const options = { ...settings, ...current, ...clients, handshakeTimeout: handshakeMs };
  const server = createSecureServer(options, (request, response) => {
    response.setHeader("strict-transport-security", onlyEncrypted);
    listener(request, response);
  });
  certificates.onChange((renewed) => server.setSecureContext(renewed));
  return server;
}
