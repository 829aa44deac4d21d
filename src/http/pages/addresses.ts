import type { FastifyRequest } from "fastify";
import { hostOf, isEncrypted, schemeOf } from "../origin.js";

/** The addresses of the protocols, as the client sees them. */
export interface Addresses {
  /** HTTP/JSON and Connect: a URL without a path. */
  readonly http: string;
  /** gRPC: a host and a port. */
  readonly grpc: string;
  /** Whether the gRPC port uses TLS. */
  readonly grpcOverTls: boolean;
}

/** Builds the addresses from the request's Host header, if it is a host, and else for a client on this machine. */
export function addressesOf({ raw }: FastifyRequest, grpcPort: number): Addresses {
  const { host, hostname } = hostOf(raw) ?? { host: `localhost:${raw.socket.localPort}`, hostname: "localhost" };
  return {
    http: `${schemeOf(raw)}://${host}`,
    grpc: `${hostname}:${grpcPort}`,
    grpcOverTls: isEncrypted(raw), // a proxy that terminates TLS says nothing about the gRPC port
  };
}
