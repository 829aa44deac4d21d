import type { FastifyRequest } from "fastify";

/** Where the protocols are, as the one who asks sees them. */
export interface Addresses {
  /** HTTP/JSON and Connect: a URL without a path. */
  readonly http: string;
  /** gRPC: a host and a port. */
  readonly grpc: string;
  /** Whether gRPC is spoken over TLS. */
  readonly grpcOverTls: boolean;
}

/**
 * Tells the protocols by the name that the asker used for this service: which names lead here, a service does not know. All
 * of it comes from the asker and is shown to the asker alone.
 */
export function addressesOf({ host, headers, protocol, socket }: FastifyRequest, grpcPort: number): Addresses {
  // Nothing but a host and a port: what is shown will be pasted into a shell.
  const [name, hostname] = /^(\[[\da-f:.]+\]|[\w.-]+)(?::\d{1,5})?$/i.exec(host) ?? [];
  // A proxy that ends TLS says so here; of the gRPC port it tells nothing.
  const scheme = /^https\b/i.test(String(headers["x-forwarded-proto"])) ? "https" : protocol;
  return {
    http: `${scheme}://${name ?? `localhost:${socket.localPort}`}`,
    grpc: `${hostname ?? "localhost"}:${grpcPort}`,
    grpcOverTls: protocol === "https",
  };
}
