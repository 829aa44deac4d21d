import { lookup } from "node:dns/promises";
import { UserError } from "../errors.js";

/**
 * Resolves a host to one address. A name such as localhost may have several, and servers differ in which of them they
 * listen on: grpc-js listens on all, each with its own limits. So every port uses the first address.
 */
export async function addressOf(host: string): Promise<string> {
  return (await lookup(host)).address;
}

/** The host for clients on this machine: a wildcard address includes the loopback address. */
export function clientHost(host: string): string {
  if (host === "0.0.0.0" || host === "::") return "127.0.0.1";
  return host.includes(":") ? `[${host}]` : host;
}

/** The error for a port that cannot be opened. It names the variables that set the port and its address. */
export function listenError(variable: string, host: string, port: number, hostVariable = "HOST") {
  return (cause: Error): never => {
    const why = /EADDRINUSE/.test(cause.message) ? "the port is already in use" : cause.message;
    throw new UserError(
      `Cannot listen on ${host}:${port}: ${why}. Set ${hostVariable} or ${variable} to use another address.`,
      {
        cause,
      },
    );
  };
}
