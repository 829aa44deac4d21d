import { type IncomingMessage, type RequestListener, type ServerResponse, STATUS_CODES } from "node:http";
import { serviceOverloaded } from "../errors.js";
import { mintId } from "../ids.js";
import type { LoadShedder } from "../overload/event-loop.js";
import type { ShedCounter } from "../overload/shed-counter.js";
import { noStoreHeaders } from "./call.js";
import { type ErrorResponse, toErrorResponse } from "./connect/error-response.js";
import { writeEncoded } from "./internals.js";
import { errorBody, errorHeaders, jsonHeaders } from "./json/envelope.js";

export interface ShedOptions {
  readonly guard: LoadShedder;
  readonly shedding: ShedCounter;
  /** The base of error URLs. A function, because the port may be known only once it is open. */
  readonly docsBase: () => string;
}

/** Health checks must get a response, above all under overload. */
const alwaysServed = new Set(["/livez", "/readyz", "/v2/liveness"]);

/**
 * Sheds requests when the process is overloaded, before any work is done for them: before Fastify, before their bodies
 * are read and before their callers are known. A shed request must cost a fraction of a served one, or shedding would
 * itself cause overload. So shed requests are counted, not logged.
 *
 * @param listening whether the server accepts new connections; if not, each response closes its connection
 */
export function shedRequests(
  serve: RequestListener,
  { guard, shedding, docsBase }: ShedOptions,
  listening: () => boolean,
): RequestListener {
  const error = serviceOverloaded();
  const retryHeaders = errorHeaders(error);
  let prepared: ((requestId: string) => Buffer) | undefined;

  function envelope(requestId: string): ErrorResponse {
    return { status: 503, headers: jsonHeaders, body: errorBody(error, requestId, docsBase()) };
  }

  function refuse(request: IncomingMessage, response: ServerResponse): void {
    shedding.count("event_loop");
    const requestId = mintId("req");
    const isRpc = request.url?.startsWith("/latchkey.") === true;
    const keepAlive = listening();
    if (!isRpc && keepAlive && request.method !== "HEAD" && isNextOnConnection(response)) {
      prepared ??= prepareResponse(requestId, envelope(requestId), retryHeaders);
      writeEncoded(response, prepared(requestId));
      return;
    }
    const { status, headers, body } = (isRpc && toErrorResponse(request, error, requestId)) || envelope(requestId);
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
    if (guard.accepts() || alwaysServed.has(pathOf(request))) serve(request, response);
    else refuse(request, response);
  };
}

function pathOf({ url = "" }: IncomingMessage): string {
  return url.split("?", 1)[0] ?? "";
}

/** Encodes a response once, as sent over the wire. The result copies it for other requests, with another request id. */
function prepareResponse(
  id: string,
  { status, headers, body }: ErrorResponse,
  extraHeaders: Readonly<Record<string, string>>,
) {
  const length = `${Buffer.byteLength(body)}`;
  const allHeaders = {
    ...headers,
    ...extraHeaders,
    "x-request-id": id,
    "content-length": length,
    connection: "keep-alive",
  };
  const lines = Object.entries(allHeaders).map(([name, value]) => `${name}: ${value}`);
  const template = Buffer.from([`HTTP/1.1 ${status} ${STATUS_CODES[status]}`, ...lines, "", body].join("\r\n"));
  const idOffsets = [template.indexOf(id), template.lastIndexOf(id)];
  return (requestId: string) => {
    const bytes = Buffer.from(template);
    for (const offset of idOffsets) bytes.write(requestId, offset, "latin1");
    return bytes;
  };
}

/** Whether this response is the next one on its connection, and the connection stays open after it. */
function isNextOnConnection({ socket, shouldKeepAlive }: ServerResponse): boolean {
  return socket !== null && shouldKeepAlive; // Node assigns the socket to one response at a time
}
