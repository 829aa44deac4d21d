import type { FastifyRequest } from "fastify";

/** The addresses of the protocols, as the client sees them. */
export interface Addresses {
  /** HTTP/JSON and Connect: a URL without a path. */
  readonly http: string;
  /** gRPC: a host and a port. */
  readonly grpc: string;
  /** Whether the gRPC port uses TLS. */
  readonly grpcOverTls: boolean;
}

/**
 * Builds the addresses from the request's Host header, because a service does not know under which names it is
 * reachable. All of it comes from the client and is shown to that client alone.
 */
export function addressesOf({ host, headers, protocol, socket }: FastifyRequest, grpcPort: number): Addresses {
  // Accepts only a host and a port: readers paste the shown commands into a shell.
  const [name, hostname] = /^(\[[\da-f:.]+\]|[\w.-]+)(?::\d{1,5})?$/i.exec(host) ?? [];
  // A proxy that terminates TLS sets this header. The header says nothing about the gRPC port.
  const scheme = /^https\b/i.test(String(headers["x-forwarded-proto"])) ? "https" : protocol;
  return {
    http: `${scheme}://${name ?? `localhost:${socket.localPort}`}`,
    grpc: `${hostname ?? "localhost"}:${grpcPort}`,
    grpcOverTls: protocol === "https",
  };
}
