import type { IncomingMessage } from "node:http";
import type { TLSSocket } from "node:tls";

/**
 * The base of the error URLs in the response to a request. Without a request, which is so if its headers could not be
 * read, the service's own address.
 */
export type DocsBase = (request?: IncomingMessage) => string;

/** A host, and optionally a port. Nothing else is accepted: readers paste addresses into a shell, and open them. */
const hostForm = /^(\[[\da-f:.]{2,45}\]|[\w.-]{1,253})(?::\d{1,5})?$/i;

/** The host of a request, with and without its port. Undefined if its Host header is not a host. */
export function hostOf({ headers }: Pick<IncomingMessage, "headers">): { host: string; hostname: string } | undefined {
  const [host, hostname] = hostForm.exec(headers.host ?? "") ?? [];
  return host === undefined || hostname === undefined ? undefined : { host, hostname };
}

/** Whether the port of a request uses TLS. */
export function isEncrypted({ socket }: Pick<IncomingMessage, "socket">): boolean {
  return (socket as Partial<TLSSocket>).encrypted === true;
}

/**
 * The address that a client has used, as a URL without a path: a service does not know under which names it is
 * reachable. All of it comes from the client, and goes into responses to that client alone, which no cache stores.
 * Undefined if the Host header of the request is not a host.
 */
export function originOf(request: Pick<IncomingMessage, "headers" | "socket">): string | undefined {
  const host = hostOf(request)?.host;
  return host === undefined ? undefined : `${schemeOf(request)}://${host}`;
}

/** The scheme that a client has used. A proxy that terminates TLS sets X-Forwarded-Proto. */
export function schemeOf(request: Pick<IncomingMessage, "headers" | "socket">): "http" | "https" {
  const isForwarded = /^https\b/i.test(String(request.headers["x-forwarded-proto"]));
  return isForwarded || isEncrypted(request) ? "https" : "http";
}
