import { lookup } from "node:dns/promises";
import { UserError } from "../errors.js";

/**
 * The address that a host stands for. A name such as localhost may have several, and the servers do not agree on which
 * of them to listen: grpc-js takes all, each with limits of its own. The first it is, for every port.
 */
export async function addressOf(host: string): Promise<string> {
  return (await lookup(host)).address;
}

/** A host that clients on this machine can name: listening everywhere includes the loopback. */
export function clientHost(host: string): string {
  if (host === "0.0.0.0" || host === "::") return "127.0.0.1";
  return host.includes(":") ? `[${host}]` : host;
}

/** Tells why a port cannot be opened, and by which variable another is chosen. */
export function listenError(variable: string, host: string, port: number) {
  return (cause: Error): never => {
    const why = /EADDRINUSE/.test(cause.message) ? "something else listens there already" : cause.message;
    throw new UserError(`Cannot listen on ${host}:${port}: ${why}. Set HOST or ${variable} to use another.`, { cause });
  };
}
