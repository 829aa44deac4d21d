import { createServer, type RequestListener, type Server, type ServerOptions, type ServerResponse } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { Certificates } from "../net/certificates.js";
import { type Limits, timeoutCheckIntervalMs } from "../overload/limits.js";

/** Creates the server of the HTTP port, with TLS if there are certificates. */
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
    requireHostHeader: false, // we refuse the request ourselves, with the envelope
  };
  const server = certificates
    ? createTlsServer(listener, certificates, settings, limits)
    : createServer(settings, listener);
  // Node would drop headers beyond 2,000. All are read, and a request with too many is refused.
  server.maxHeadersCount = 0;
  // How long a connection may be inactive during a call. The longest call takes a third of it, so beyond this time the
  // client does not read its response.
  server.timeout = limits.requestTimeoutMs;
  return server;
}

/**
 * HSTS: for a year, browsers use only TLS for this host. Without TLS, an attacker could respond in its place.
 * Subdomains are not included, because this service cannot decide for them.
 */
const strictTransportSecurity = "max-age=31536000";

/** Creates a server that presents the current certificates to every new connection. */
function createTlsServer(
  listener: RequestListener,
  certificates: Certificates,
  settings: ServerOptions,
  { handshakeTimeoutMs }: Limits,
): Server {
  const { current, clients } = certificates;
  const options = { ...settings, ...current, ...clients, handshakeTimeout: handshakeTimeoutMs };
  const server = createHttpsServer(options, (request, response) => {
    response.setHeader("strict-transport-security", strictTransportSecurity);
    listener(request, response);
  });
  certificates.onChange((renewed) => server.setSecureContext(renewed));
  return server;
}
