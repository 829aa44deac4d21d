import { createServer, type ServerOptions } from "node:https";
import type { FastifyServerFactory } from "fastify";
import type { Certificates } from "../certificates.js";

/** How long a client may take to agree on the encryption. */
const handshakeMs = 10_000;

/** Makes the server of an HTTPS port. It presents the certificates of the moment to every new connection. */
export function httpsServer(certificates: Certificates, settings: ServerOptions): FastifyServerFactory {
  return (handler) => {
    const { current, clients } = certificates;
    const server = createServer({ ...settings, ...current, ...clients, handshakeTimeout: handshakeMs }, handler);
    certificates.onChange((renewed) => server.setSecureContext(renewed));
    return server;
  };
}
