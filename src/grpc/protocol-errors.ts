// By methods of the stream that are replaced, because the interceptors of grpc-js hear nothing of what it answers while
// it reads a call.
import type { OutgoingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import { type ApiError, invalidInput, routeNotFound, unsupportedMediaType } from "../errors.js";
import { mintId } from "../ids.js";
import type { AccessLog } from "../observe/access-log.js";
import { compressedRequest } from "./message-reader.js";
import { acceptedEncoding, errorTrailers, isResponded, responseHeaders } from "./response.js";
import type { OpenStream } from "./stream-limits.js";

/** Sees to it that a call which grpc-js cannot read is answered by us. To be done before grpc-js gets its stream. */
export type MapProtocolErrors = (open: OpenStream) => void;

/**
 * What grpc-js cannot read it answers by itself: without our details, and some of it as if the mistake were the
 * server's. Such an answer is kept back, and the call refused in our words: so it is counted and logged.
 *
 * These calls have no name in the log: callers could make up any. Of health and reflection only this is logged. What they
 * answer by themselves, such as that there is no service of a name, are words of their protocols.
 */
export function createProtocolErrors(logCall: AccessLog): MapProtocolErrors {
  function refusal(failure: ApiError): OutgoingHttpHeaders {
    const requestId = mintId("req");
    const startedAt = performance.now();
    logCall({ requestId, protocol: "grpc", method: "(none)", workspaceId: undefined, startedAt, failure });
    return errorTrailers(failure, { requestId });
  }

  return (open) => {
    const { stream } = open;
    const { respond, sendTrailers } = stream;

    function answer(trailers: OutgoingHttpHeaders, httpStatus: OutgoingHttpHeaders[":status"] = 200): void {
      if (isResponded(stream)) return;
      respond.call(stream, { ...responseHeaders, ":status": httpStatus, ...trailers }, { endStream: true });
    }

    open.refuse = (failure) => answer(refusal(failure));

    stream.respond = (given, options) => {
      if (isResponded(stream)) return; // it was refused, of which grpc-js knows nothing
      if (given?.["grpc-accept-encoding"] !== undefined) given["grpc-accept-encoding"] = acceptedEncoding;
      const failure = given && options?.endStream && !isOurs(given) ? failureOf(given) : undefined;
      if (failure === undefined) respond.call(stream, given, options);
      else answer(refusal(failure), given?.[":status"]);
    };

    // A stream of messages may have been answered in part: then it can only be ended in our words.
    stream.sendTrailers = (trailers) => {
      const failure = isOurs(trailers) ? undefined : failureOf(trailers);
      sendTrailers.call(stream, failure ? refusal(failure) : trailers);
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
function failureOf(answer: OutgoingHttpHeaders): ApiError | undefined {
  if (!isGrpc(answer)) return unsupportedMediaType("This port takes gRPC: send `Content-Type: application/grpc`.");
  const words = wordsOf(answer);
  const begin = Object.keys(failures).find((each) => words.startsWith(each)) ?? "";
  return failures[begin]?.();
}

function wordsOf(answer: OutgoingHttpHeaders): string {
  return String(answer["grpc-message"]).replaceAll("%20", " ");
}

const inBody = (message: string) => invalidInput([{ location: "body", message }]);
const notOneMessage = () => inBody("is not exactly one gRPC message");

/** How the words of grpc-js 1.14.7 begin: look at them when it is updated. What it cannot get to read is not here. */
const failures: Readonly<Record<string, () => ApiError>> = {
  "Received message compressed with unsupported encoding": compressedRequest,
  "Received no request message": notOneMessage,
  "Received a second request message": notOneMessage,
  "Error deserializing request": () => inBody("is not a message of this method"),
  "The server does not implement the method": routeNotFound,
};
