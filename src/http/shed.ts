import { type IncomingMessage, type RequestListener, type ServerResponse, STATUS_CODES } from "node:http";
import { serviceOverloaded } from "../errors.js";
import { mintId } from "../ids.js";
import type { LoadShedder } from "../overload/event-loop.js";
import type { Limits } from "../overload/limits.js";
import type { ShedCounter } from "../overload/shed-counter.js";
import { alwaysServed, prepareResponse } from "../overload/shed-response.js";
import { noStoreHeaders } from "./call.js";
import { findUnsupportedHttp } from "./client-errors.js";
import { type ErrorResponse, toErrorResponse } from "./connect/error-response.js";
import { encodeHead, isNextOnConnection } from "./direct-response.js";
import { errorBody, errorHeaders, jsonHeaders } from "./json/envelope.js";
import type { DocsBase } from "./origin.js";
import { writeInBatch } from "./response-batch.js";

export interface ShedOptions {
  readonly guard: LoadShedder;
  readonly shedding: ShedCounter;
  readonly docsBase: DocsBase;
  readonly limits: Limits;
}

/**
 * Sheds requests when the process is overloaded, before any work is done for them: before Fastify, before their bodies
 * are read and before their callers are known. A shed request must cost a fraction of a served one, or shedding would
 * itself cause overload. So shed requests are counted, not logged.
 *
 * @param listening whether the server accepts new connections; if not, each response closes its connection
 */
export function shedRequests(
  serve: RequestListener,
  { guard, shedding, docsBase, limits }: ShedOptions,
  listening: () => boolean,
): RequestListener {
  const error = serviceOverloaded();
  const retryHeaders = errorHeaders(error);
  // Prepared for the address that the last client has used, because most clients use the same.
  let prepared: { readonly base: string; encode(requestId: string): Buffer } | undefined;

  function envelope(requestId: string, base: string): ErrorResponse {
    return { status: 503, headers: jsonHeaders, body: errorBody(error, requestId, base) };
  }

  function refuse(request: IncomingMessage, response: ServerResponse): void {
    shedding.count("event_loop");
    const requestId = mintId("req");
    const isRpc = request.url?.startsWith("/latchkey.") === true;
    const keepAlive = listening() && findUnsupportedHttp(request, limits) === undefined;
    const base = docsBase(request);
    // An encoded response would not have the headers that are set already, such as those of CORS or, with TLS, HSTS.
    const hasHeaders = response.getHeaderNames().length > 0;
    if (!isRpc && keepAlive && !hasHeaders && request.method !== "HEAD" && isNextOnConnection(response)) {
      if (prepared?.base !== base) {
        const encode = prepareResponse((id) => encodeResponse(id, envelope(id, base), retryHeaders));
        prepared = { base, encode };
      }
      writeInBatch(response, prepared.encode(requestId));
      return;
    }
    const { status, headers, body } =
      (isRpc && toErrorResponse(request, error, requestId)) || envelope(requestId, base);
    if (!keepAlive) response.setHeader("connection", "close");
    response
      .writeHead(status, {
        ...headers,
        ...noStoreHeaders,
        ...retryHeaders,
        "x-request-id": requestId,
        "content-length": Buffer.byteLength(body),
      })
      .end(body);
  }

  return (request, response) => {
    if (guard.accepts() || alwaysServed.http.has(urlPathOf(request.url ?? ""))) serve(request, response);
    else refuse(request, response);
  };
}

/** The path of a URL, byte for byte. */
export function urlPathOf(url: string): string {
  const queryAt = url.indexOf("?");
  return queryAt === -1 ? url : url.slice(0, queryAt);
}

/** Encodes a response as it is sent over the wire. */
function encodeResponse(
  requestId: string,
  { status, headers, body }: ErrorResponse,
  extraHeaders: Readonly<Record<string, string>>,
): Buffer {
  const head = encodeHead(`${status} ${STATUS_CODES[status]}`, {
    ...headers,
    ...extraHeaders,
    "x-request-id": requestId,
    "content-length": `${Buffer.byteLength(body)}`,
    connection: "keep-alive",
  });
  return Buffer.from(`${head}\r\n${body}`);
}
