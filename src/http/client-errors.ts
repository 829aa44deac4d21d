import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import {
  type ApiError,
  catalogue,
  deadlineExceeded,
  headerCountExceeded,
  invalidInput,
  methodNotAllowed,
  payloadTooLarge,
  titleOf,
} from "../errors.js";
import { mintId } from "../ids.js";
import type { AccessLog } from "../observe/access-log.js";
import type { Limits } from "../overload/limits.js";
import { encodeHead } from "./direct-response.js";
import { errorBody, errorHeaders, jsonHeaders } from "./json/envelope.js";
import type { DocsBase } from "./origin.js";
import { isAnswered, responseInFlight } from "./response-in-flight.js";

/** Responds to input that is not HTTP. It never reaches Fastify, so the envelope is written to the bare socket. */
export function handleClientError(
  error: Error & { code?: string },
  socket: Duplex,
  limits: Limits,
  docsBase: string,
  logCall: AccessLog,
): void {
  // Node also reports all later input, each time with a copy of it. Nothing more is read.
  if (refusedSockets.has(socket)) return;
  refusedSockets.add(socket);
  socket.pause();
  const { code = "" } = error; // the error itself is not kept, because it has that copy
  // Without any request bytes, close silently: a response now would be read as that to the client's first request.
  const receivedNothing = code === "ERR_HTTP_REQUEST_TIMEOUT" && (socket as Partial<Socket>).bytesRead === 0;
  const refuse = () => {
    if (receivedNothing || codesWithoutResponse.has(code)) socket.destroy();
    // The client would take another response for that to its next request.
    else if (isAnswered(socket)) endSocket(socket);
    else writeError(socket, (apiErrors[code] ?? notHttp)(limits), docsBase, logCall);
  };
  afterPendingResponse(socket, refuse);
}

/** Earlier requests get their responses first. Otherwise the client would take this error for one of those. */
function afterPendingResponse(socket: Duplex, refuse: () => void): void {
  const response = responseInFlight(socket);
  if (response?.req.complete && !socket.destroyed) response.once("close", () => afterPendingResponse(socket, refuse));
  else refuse();
}

const refusedSockets = new WeakSet<Duplex>();

/** The client has disconnected, or TLS is not established yet. */
const codesWithoutResponse = new Set(["ECONNRESET", "ERR_TLS_HANDSHAKE_TIMEOUT"]);

/** Node's error codes as errors of the catalogue. */
const apiErrors: Record<string, (limits: Limits) => ApiError> = {
  HPE_HEADER_OVERFLOW: ({ maxHeaderBytes }) => payloadTooLarge("head", maxHeaderBytes),
  ERR_HTTP_REQUEST_TIMEOUT: deadlineExceeded,
};

const notHttp = () => invalidInput([{ location: "request", message: "is not valid HTTP/1.1" }]);

/** Prepares a request for its listener. Must be called for each request, before any other listener. */
export function acceptRequest(request: IncomingMessage, response: ServerResponse): void {
  // Node ignores an upgrade to another protocol, and drops what it has read after such a request. What it reads next may be the
  // middle of another request, whose body it would take for a request. So the connection is closed after the response.
  if (request.headers.upgrade !== undefined) response.shouldKeepAlive = false;
  request.url = originFormOf(request);
}

/** A URL as clients send it to a proxy. */
const absoluteForm = /^https?:\/\/([^/?#]*)(.*)$/i;

/**
 * The target of a request without its scheme and host, which HTTP/1.1 allows. Another host than that of the Host header is left
 * there, so that no route is found: a proxy may have used either.
 */
function originFormOf({ url = "", headers }: IncomingMessage): string {
  if (url.startsWith("/")) return url;
  const [, host, target = ""] = absoluteForm.exec(url) ?? [];
  if (host === undefined || host.toLowerCase() !== (headers.host ?? host).toLowerCase()) return url;
  return target.startsWith("/") ? target : `/${target}`;
}

/** Handles requests that Node would answer itself without the envelope, or not at all. */
export function handleUnsupportedHttp(server: Server, docsBase: DocsBase, logCall: AccessLog): void {
  server.on("checkExpectation", (request, response) => server.emit("request", request, response));
  // The response does not repeat the target of the tunnel, which is also in the Host header.
  server.on("connect", (_request, socket) => {
    socket.on("error", () => {}); // Node no longer handles its errors: a disconnect would crash the process
    const error = methodNotAllowed("CONNECT", "This service", ["GET", "HEAD", "POST"]);
    afterPendingResponse(socket, () => writeError(socket, error, docsBase(), logCall));
  });
}

/**
 * Finds HTTP features that this port does not support, above all those that a proxy may interpret differently. The connection
 * must be closed after the response: a proxy may also disagree about where the request ends.
 */
export function findUnsupportedHttp(
  { headers, rawHeaders, httpVersion }: IncomingMessage,
  limits: Limits,
): ApiError | undefined {
  if (rawHeaders.length > 2 * limits.maxHeaders) return headerCountExceeded(limits.maxHeaders);
  if (httpVersion !== "1.1" && httpVersion !== "1.0") {
    return invalidInput([{ location: "request", message: "must be HTTP/1.1 or HTTP/1.0" }]);
  }
  const hosts = countHostHeaders(rawHeaders);
  if (hosts === 0 && httpVersion === "1.1") {
    return invalidInput([{ location: "Host", message: "is required by HTTP/1.1" }]);
  }
  if (hosts > 1) return invalidInput([{ location: "Host", message: "must be given only once" }]);
  const encoding = headers["transfer-encoding"];
  if (encoding !== undefined && encoding.toLowerCase() !== "chunked") {
    return invalidInput([{ location: "Transfer-Encoding", message: "must be chunked" }]);
  }
  // A proxy may ignore it, as HTTP/1.0 does not have it, and then take the chunks for other requests.
  if (encoding !== undefined && httpVersion === "1.0") {
    return invalidInput([{ location: "Transfer-Encoding", message: "must not be given with HTTP/1.0" }]);
  }
  if (headers.expect !== undefined && headers.expect.toLowerCase() !== "100-continue") {
    return invalidInput([{ location: "Expect", message: "must be 100-continue" }]);
  }
  return undefined;
}

function countHostHeaders(rawHeaders: readonly string[]): number {
  let count = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] as string;
    if (name.length === 4 && name.toLowerCase() === "host") count += 1;
  }
  return count;
}

function writeError(socket: Duplex, error: ApiError, docsBase: string, logCall: AccessLog): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  const requestId = mintId("req");
  const body = errorBody(error, requestId, docsBase);
  const head = encodeHead(`${catalogue[error.code].status} ${titleOf(error.code)}`, {
    "content-length": `${Buffer.byteLength(body)}`,
    ...jsonHeaders,
    ...errorHeaders(error),
    "x-request-id": requestId,
    connection: "close",
  });
  logCall({
    requestId,
    protocol: "http",
    method: "(none)",
    workspaceId: undefined,
    startedAt: performance.now(),
    error: error,
  });
  endSocket(socket, `${head}\r\n${body}`);
}

/** Closes a connection after its last bytes. A client that does not close its side must not keep the file descriptor open. */
function endSocket(socket: Duplex, bytes?: string): void {
  socket.end(bytes, () => setTimeout(() => socket.destroy(), 1_000).unref());
}
