// By methods of the stream that are replaced, because the interceptors of grpc-js hear nothing of what it answers while
// it reads a call.
import { EventEmitter } from "node:events";
import type { IncomingHttpHeaders, OutgoingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { Metadata, type StatusObject, status } from "@grpc/grpc-js";
import {
  type Failure,
  invalidInput,
  mediaTypeUnsupported,
  payloadTooLarge,
  routeNotFound,
  unexpectedError,
} from "../errors.js";
import { mintId } from "../ids.js";
import type { LogCall } from "../observe/calls.js";
import { largestMessage } from "./pipeline.js";
import { toStatus, type UnaryCall, type UnaryHandler } from "./unary-handler.js";

/** Sees to it that a call which grpc-js cannot read is answered by us. To be done before grpc-js gets its stream. */
export type AnswerUnread = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void;

/**
 * What grpc-js cannot read it answers by itself: without our details, and some of it as if the mistake were the
 * server's. Such an answer is kept back. The call goes to its handler all the same, as one whose message cannot be had:
 * so its caller is judged first, as ever, and it is counted and logged.
 *
 * What is for none of our handlers has no name in the log: callers could make up any. Of health and reflection only this
 * is logged. What they answer by themselves, such as that there is no service of a name, are words of their protocols.
 */
export function createAnswerUnread(handlers: ReadonlyMap<string, UnaryHandler>, logCall: LogCall): AnswerUnread {
  function refuse(failure: Failure): StatusObject {
    const requestId = mintId("req");
    const startedAt = performance.now();
    logCall({ requestId, door: "grpc", method: "(none)", workspaceId: undefined, startedAt, failure });
    return toStatus(failure, { requestId });
  }

  return (stream, headers) => {
    const { respond, sendTrailers } = stream;

    stream.respond = (answer, options) => {
      if (answer === undefined || !options?.endStream || isOurs(answer)) return respond.call(stream, answer, options);
      const handle = isGrpc(answer) ? handlers.get(headers[":path"] ?? "") : undefined;
      const failure = failureOf(answer, headers) ?? (handle && unexpectedError(new Error(wordsOf(answer))));
      if (failure === undefined) return respond.call(stream, answer, options);

      const head = { ...answerHead, ":status": answer[":status"] };
      if (handle === undefined) return respond.call(stream, { ...head, ...toTrailers(refuse(failure)) }, options);
      const write: Parameters<UnaryHandler>[1] = (told) => {
        const isLate = stream.headersSent || stream.destroyed || stream.closed;
        if (!isLate) respond.call(stream, { ...head, ...toTrailers(told as StatusObject) }, options);
      };
      void handle(unreadCall(stream, headers), write, failure);
    };

    // A stream of messages may have been answered in part: then it can only be ended in our words.
    stream.sendTrailers = (trailers) => {
      const failure = isOurs(trailers) ? undefined : failureOf(trailers, headers);
      sendTrailers.call(stream, failure ? toTrailers(refuse(failure)) : trailers);
    };
  };
}

/** Whether it is a success, or a failure with our details. */
function isOurs(answer: OutgoingHttpHeaders): boolean {
  return answer["grpc-status"] === status.OK || answer["grpc-status-details-bin"] !== undefined;
}

/** Whether the call was gRPC at all. */
function isGrpc(answer: OutgoingHttpHeaders): boolean {
  return answer["grpc-status"] !== undefined;
}

/** What grpc-js says, in terms of the catalogue; undefined for what it does not say by itself. */
function failureOf(answer: OutgoingHttpHeaders, headers: IncomingHttpHeaders): Failure | undefined {
  if (!isGrpc(answer)) return mediaTypeUnsupported("This port takes gRPC: send `Content-Type: application/grpc`.");
  const words = wordsOf(answer);
  const begin = Object.keys(failures).find((each) => words.startsWith(each)) ?? "";
  return failures[begin]?.(headers);
}

function wordsOf(answer: OutgoingHttpHeaders): string {
  return String(answer["grpc-message"]).replaceAll("%20", " ");
}

const tooLarge = () => payloadTooLarge("body", largestMessage);
const inBody = (message: string) => invalidInput([{ location: "body", message }]);
const notOneMessage = () => inBody("is not exactly one gRPC message");

/** How the words of grpc-js 1.14.7 begin: look at them when it is updated. */
const failures: Readonly<Record<string, (headers: IncomingHttpHeaders) => Failure>> = {
  "Received message larger than max": tooLarge,
  "Received message that decompresses to a size larger than": tooLarge,
  "Failed to decompress message": (headers) => inBody(`is not compressed as ${headers["grpc-encoding"]}`),
  "Received message compressed with unsupported encoding": () =>
    mediaTypeUnsupported("A message can be compressed by gzip or deflate, and by nothing else."),
  "Received no request message": notOneMessage,
  "Received a second request message": notOneMessage,
  "Error deserializing request": () => inBody("is not a message of this method"),
  "The server does not implement the method": routeNotFound,
};

/** As gRPC's protocol has it, who compresses in a way that is not known is told which ways are. */
const answerHead = { "content-type": "application/grpc+proto", "grpc-accept-encoding": "identity,deflate,gzip" };

function unreadCall(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): UnaryCall {
  const rpc = new EventEmitter();
  stream.once("close", () => rpc.emit("cancelled"));
  return Object.assign(rpc, { metadata: Metadata.fromHttp2Headers(headers), request: new Uint8Array() });
}

function toTrailers({ code, details, metadata }: StatusObject): OutgoingHttpHeaders {
  return { "grpc-status": code, "grpc-message": encodeURI(details), ...metadata.toHttp2Headers() };
}
