import type { OutgoingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { Call } from "../call/call.js";
import { type ApiError, grpcStatusOf } from "../errors.js";
import { toStatusBytes } from "../rpc/status.js";
import { prefixBytes } from "./message-reader.js";

type Answered = Pick<Call, "requestId" | "responseHeaders">;

/** As gRPC's protocol has it, who compresses is told that it is not to. */
export const acceptedEncoding = "identity";

/** The head of every response. */
export const responseHeaders: OutgoingHttpHeaders = {
  ":status": 200,
  "content-type": "application/grpc+proto",
  "grpc-accept-encoding": acceptedEncoding,
};

/** A failure as the trailers of a response. */
export function errorTrailers(failure: ApiError, call: Answered): OutgoingHttpHeaders {
  return {
    "grpc-status": Number(grpcStatusOf(failure.code)),
    "grpc-message": encodeURI(failure.detail),
    "x-request-id": call.requestId,
    ...call.responseHeaders,
    "grpc-status-details-bin": Buffer.from(toStatusBytes(failure, call.requestId)).toString("base64"),
  };
}

/** A message with its prefix: it is not compressed, and so long. */
export function frameMessage(message: Uint8Array): Buffer {
  const framed = Buffer.allocUnsafe(prefixBytes + message.length);
  framed[0] = 0;
  framed.writeUInt32BE(message.length, 1);
  framed.set(message, prefixBytes);
  return framed;
}

/** Whether a response was begun, or can no longer be. */
export function isResponded(stream: ServerHttp2Stream): boolean {
  return stream.headersSent || stream.destroyed || stream.closed;
}

/** Responds without a message. */
export function respondTrailers(stream: ServerHttp2Stream, trailers: OutgoingHttpHeaders): void {
  if (!isResponded(stream)) stream.respond({ ...responseHeaders, ...trailers }, { endStream: true });
}

/** Responds with one message. */
export function respondMessage(stream: ServerHttp2Stream, framed: Buffer, call: Answered): void {
  if (isResponded(stream)) return;
  stream.respond(responseHeaders, { waitForTrailers: true });
  stream.once("wantTrailers", () => {
    stream.sendTrailers({ "grpc-status": status.OK, "x-request-id": call.requestId, ...call.responseHeaders });
  });
  stream.end(framed);
}
