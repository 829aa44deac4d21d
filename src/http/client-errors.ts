import type { IncomingMessage, Server } from "node:http";
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
import { responseInFlight } from "../net/sockets.js";
import type { AccessLog } from "../observe/access-log.js";
import type { Limits } from "../overload/limits.js";
import { errorBody, errorHeaders, jsonHeaders } from "./json/envelope.js";

/** Answers what is not even HTTP. Such a request never reaches Fastify, so the envelope goes onto the bare socket. */
export function handleClientError(
  error: Error & { code?: string },
  socket: Duplex,
  limits: Limits,
  docsBase: string,
  logCall: AccessLog,
): void {
  // Node reports whatever comes afterwards, too, each time with a copy of it. None of it is read any more.
  if (refused.has(socket)) return;
  refused.add(socket);
  socket.pause();
  const { code = "" } = error; // and not the error itself, which has that copy
  // Who has not begun to ask is told nothing: the answer would be taken for that to the first question.
  const unasked = code === "ERR_HTTP_REQUEST_TIMEOUT" && (socket as Partial<Socket>).bytesRead === 0;
  const refuse = () => {
    if (!socket.writable || unasked || unanswerable.has(code)) socket.destroy();
    else writeFailure(socket, (failures[code] ?? notHttp)(limits), docsBase, logCall);
  };
  // Requests that came before the broken one are answered first, or their client would take the refusal for the answer.
  const refuseInTurn = () => {
    const answer = responseInFlight(socket);
    if (answer?.req.complete && !socket.destroyed) answer.once("close", refuseInTurn);
    else refuse();
  };
  refuseInTurn();
}

const refused = new WeakSet<Duplex>();

/** The client is gone, or there is no encryption yet to answer in. */
const unanswerable = new Set(["ECONNRESET", "ERR_TLS_HANDSHAKE_TIMEOUT"]);

/** What Node says, in terms of the catalogue. */
const failures: Record<string, (limits: Limits) => ApiError> = {
  HPE_HEADER_OVERFLOW: ({ maxHeaderBytes: headBytes }) => payloadTooLarge("head", headBytes),
  ERR_HTTP_REQUEST_TIMEOUT: deadlineExceeded,
};

const notHttp = () => invalidInput([{ location: "request", message: "is not valid HTTP/1.1" }]);

/** Takes over what Node would answer itself, without the envelope, or not at all. */
export function handleUnsupportedHttp(server: Server, docsBase: () => string, logCall: AccessLog): void {
  server.on("checkExpectation", (request, response) => server.emit("request", request, response));
  // Where the tunnel was to lead is not repeated.
  server.on("connect", (_request, socket) => {
    socket.on("error", () => {}); // Node has let go of the socket: that its client is gone would end the process
    const failure = methodNotAllowed("CONNECT", "This service", ["GET", "HEAD", "POST"]);
    writeFailure(socket, failure, docsBase(), logCall);
  });
}

/** Refuses what is HTTP, but not for us; above all what a proxy before us may have read in another way. */
export function rejectUnsupportedHttp({ headers, rawHeaders, httpVersion }: IncomingMessage, limits: Limits): void {
  if (rawHeaders.length > 2 * limits.maxHeaders) throw headerCountExceeded(limits.maxHeaders);
  if (httpVersion !== "1.1" && httpVersion !== "1.0") {
    throw invalidInput([{ location: "request", message: "must be HTTP/1.1 or HTTP/1.0" }]);
  }
  const hosts = countHosts(rawHeaders);
  if (hosts === 0 && httpVersion === "1.1") {
    throw invalidInput([{ location: "Host", message: "is a header that HTTP/1.1 requires" }]);
  }
  if (hosts > 1) throw invalidInput([{ location: "Host", message: "must be given only once" }]);
  const encoding = headers["transfer-encoding"];
  if (encoding !== undefined && encoding.toLowerCase() !== "chunked") {
    throw invalidInput([{ location: "Transfer-Encoding", message: "can only be chunked" }]);
  }
  if (headers.expect !== undefined && headers.expect.toLowerCase() !== "100-continue") {
    throw invalidInput([{ location: "Expect", message: "can only be 100-continue" }]);
  }
}

function countHosts(rawHeaders: readonly string[]): number {
  let count = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] as string;
    if (name.length === 4 && name.toLowerCase() === "host") count += 1;
  }
  return count;
}

function writeFailure(socket: Duplex, failure: ApiError, docsBase: string, logCall: AccessLog): void {
  const requestId = mintId("req");
  const body = errorBody(failure, requestId, docsBase);
  const head = [
    `HTTP/1.1 ${catalogue[failure.code].status} ${titleOf(failure.code)}`,
    `content-length: ${Buffer.byteLength(body)}`,
    ...Object.entries({ ...jsonHeaders, ...errorHeaders(failure) }).map(([name, value]) => `${name}: ${value}`),
    `x-request-id: ${requestId}`,
    "connection: close",
  ];
  logCall({
    requestId,
    protocol: "http",
    method: "(none)",
    workspaceId: undefined,
    startedAt: performance.now(),
    failure,
  });
  // Destroyed once it is said: a client that does not close its side must not keep the descriptor.
  socket.end(`${head.join("\r\n")}\r\n\r\n${body}`, () => setTimeout(() => socket.destroy(), 1_000).unref());
}
