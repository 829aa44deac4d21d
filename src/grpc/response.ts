import type { OutgoingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { Call } from "../call/call.js";
import { type ApiError, grpcStatusOf } from "../errors.js";
import { toStatusBytes } from "../rpc/status.js";
import { prefixBytes } from "./message-reader.js";

type RespondedCall = Pick<Call, "requestId" | "responseHeaders">;

/** The value of `grpc-accept-encoding`, by which the gRPC protocol informs a client that compresses. */
export const acceptedEncoding = "identity";

/** The headers of every response. */
export const responseHeaders: OutgoingHttpHeaders = {
  ":status": 200,
  "content-type": "application/grpc+proto",
  "grpc-accept-encoding": acceptedEncoding,
};

/** An error as the trailers of a response. */
export function errorTrailers(error: ApiError, call: RespondedCall): OutgoingHttpHeaders {
  return {
    "grpc-status": Number(grpcStatusOf(error.code)),
    "grpc-message": encodeURI(error.detail),
    "x-request-id": call.requestId,
    ...call.responseHeaders,
    "grpc-status-details-bin": Buffer.from(toStatusBytes(error, call.requestId)).toString("base64"),
  };
}

/** A message with its prefix: the flag for uncompressed, and the length. */
export function frameMessage(message: Uint8Array): Buffer {
  const framed = Buffer.allocUnsafe(prefixBytes + message.length);
  framed[0] = 0;
  framed.writeUInt32BE(message.length, 1);
  framed.set(message, prefixBytes);
  return framed;
}

/** Whether a response has been started, or can no longer be sent. */
export function isResponded(stream: ServerHttp2Stream): boolean {
  return stream.headersSent || stream.destroyed || stream.closed;
}

/** Sends a response without a message. */
export function respondTrailers(stream: ServerHttp2Stream, trailers: OutgoingHttpHeaders): void {
  if (!isResponded(stream)) stream.respond({ ...responseHeaders, ...trailers }, { endStream: true });
}

/** Sends a response with one message. */
export function respondMessage(stream: ServerHttp2Stream, framed: Buffer, call: RespondedCall): void {
  if (isResponded(stream)) return;
  stream.respond(responseHeaders, { waitForTrailers: true });
  stream.once("wantTrailers", () => {
    stream.sendTrailers({ "grpc-status": status.OK, "x-request-id": call.requestId, ...call.responseHeaders });
  });
  stream.end(framed);
}
