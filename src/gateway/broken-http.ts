import { maxHeaderSize } from "node:http";
import type { Socket } from "node:net";
import { catalogue, deadlineExceeded, type Failure, invalidInput, payloadTooLarge, titleOf } from "../errors.js";
import { mintId } from "../ids.js";
import { failureBody } from "./envelope.js";

/** Answers what is not even HTTP. Such a request never reaches Fastify, so the envelope goes onto the bare socket. */
export function refuseBrokenHttp(error: Error & { code?: string }, socket: Socket, docsBase: string): void {
  if (!socket.writable || error.code === "ECONNRESET") {
    socket.destroy();
    return;
  }
  const failure = (failures[error.code ?? ""] ?? notHttp)();
  const requestId = mintId("req");
  const body = failureBody(failure, requestId, docsBase);
  const head = [
    `HTTP/1.1 ${catalogue[failure.code].status} ${titleOf(failure.code)}`,
    "content-type: application/json; charset=utf-8",
    `content-length: ${Buffer.byteLength(body)}`,
    `x-request-id: ${requestId}`,
    "connection: close",
  ];
  socket.end(`${head.join("\r\n")}\r\n\r\n${body}`);
}

/** What Node says, in terms of the catalogue. */
const failures: Record<string, () => Failure> = {
  HPE_HEADER_OVERFLOW: () => payloadTooLarge("head", maxHeaderSize),
  ERR_HTTP_REQUEST_TIMEOUT: deadlineExceeded,
};

const notHttp = () => invalidInput([{ location: "request", message: "is not valid HTTP/1.1" }]);
