// Written by hand, because two thirds of @fastify/cors are options that have one value here, and because responses that
// Fastify does not send, such as those to shed requests, need these headers, too.
import type { IncomingMessage, RequestListener } from "node:http";
import { cors } from "@connectrpc/connect";

/** Pages of other origins that may call this service from a browser. */
export interface Cors {
  /** Serves requests with the headers that let the page of an allowed origin read the response. */
  serve(listener: RequestListener): RequestListener;
  /** The headers of the response to a preflight of an allowed origin. Undefined for any other request. */
  preflightHeaders(request: IncomingMessage): Readonly<Record<string, string>> | undefined;
}

/** @param origins the allowed origins, as browsers send them, or `*` for all */
export function createCors(origins: readonly string[]): Cors {
  const allowed = new Set(origins);
  const allowsAll = allowed.has("*");
  const isAllowed = (origin: string | undefined) => origin !== undefined && (allowsAll || allowed.has(origin));

  return {
    serve: (listener) => (request, response) => {
      const { origin } = request.headers;
      if (!allowsAll) response.setHeader("vary", "Origin"); // a cache must not use it for another origin
      if (isAllowed(origin)) {
        response.setHeader("access-control-allow-origin", allowsAll ? "*" : (origin as string));
        response.setHeader("access-control-expose-headers", exposedHeaders);
      }
      listener(request, response);
    },
    preflightHeaders({ method, headers }) {
      const isPreflight = method === "OPTIONS" && headers["access-control-request-method"] !== undefined;
      return isPreflight && isAllowed(headers.origin) ? preflightHeaders : undefined;
    },
  };
}

/** What clients need of responses: errors in gRPC-Web, and all headers that the OpenAPI document has. */
const exposedHeaders = [
  ...cors.exposedHeaders,
  "X-Request-Id",
  "Retry-After",
  "RateLimit-Policy",
  "RateLimit",
  "WWW-Authenticate",
  "Allow",
].join(", ");

/** The credential is a header that the page sets itself, so cookies and other credentials of browsers are not allowed. */
const preflightHeaders = {
  "access-control-allow-methods": cors.allowedMethods.join(", "),
  "access-control-allow-headers": [
    ...cors.allowedHeaders,
    "Authorization",
    "Idempotency-Key",
    "traceparent",
    "tracestate",
  ].join(", "),
  "access-control-max-age": "7200", // the maximum of Chromium
  "cache-control": "no-store",
} as const;
