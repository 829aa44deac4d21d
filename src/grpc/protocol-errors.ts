// Replaces methods of the stream, because grpc-js interceptors do not see the errors that grpc-js responds with while
// it reads a call.
import type { OutgoingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import { type ApiError, invalidInput, routeNotFound, unsupportedMediaType } from "../errors.js";
import { mintId } from "../ids.js";
import type { AccessLog } from "../observe/access-log.js";
import { causeOf, type GrpcJsErrorCause } from "./internals.js";
import { compressedRequest } from "./message-reader.js";
import type { OpenStream } from "./open-stream.js";
import { acceptedEncoding, errorTrailers, isResponded, responseHeaders } from "./response.js";

/** Maps the protocol errors of grpc-js on one stream. Must be called before grpc-js gets the stream. */
export type MapProtocolErrors = (open: OpenStream) => void;

/**
 * Replaces the error responses of grpc-js for calls that it cannot read. Those lack our error details, and some blame
 * the server for a mistake of the client. Each is replaced by an error of the catalogue, counted and logged.
 *
 * The log has no method name for these calls, because clients could send any. For health and reflection, only these
 * errors are logged. Errors that are part of those protocols, such as an unknown service name, are not replaced.
 */
export function createProtocolErrors(logCall: AccessLog): MapProtocolErrors {
  function logAndEncode(error: ApiError): OutgoingHttpHeaders {
    const requestId = mintId("req");
    const startedAt = performance.now();
    logCall({ requestId, protocol: "grpc", method: "(none)", workspaceId: undefined, startedAt, error: error });
    return errorTrailers(error, { requestId });
  }

  return (open) => {
    const { stream } = open;
    const { respond, sendTrailers } = stream;

    function respondError(trailers: OutgoingHttpHeaders, httpStatus: OutgoingHttpHeaders[":status"] = 200): void {
      if (isResponded(stream)) return;
      respond.call(stream, { ...responseHeaders, ":status": httpStatus, ...trailers }, { endStream: true });
    }

    open.refuse = (error) => respondError(logAndEncode(error));

    stream.respond = (headers, options) => {
      if (isResponded(stream)) return; // already refused, which grpc-js does not know
      if (headers?.["grpc-accept-encoding"] !== undefined) headers["grpc-accept-encoding"] = acceptedEncoding;
      const error = headers && options?.endStream && !isOurs(headers) ? toCatalogueError(headers) : undefined;
      if (error === undefined) respond.call(stream, headers, options);
      else respondError(logAndEncode(error), headers?.[":status"]);
    };

    // Some messages of a streaming response may have been sent already. Then only the trailers can be replaced.
    stream.sendTrailers = (trailers) => {
      const error = isOurs(trailers) ? undefined : toCatalogueError(trailers);
      sendTrailers.call(stream, error ? logAndEncode(error) : trailers);
    };
  };
}

/** Whether it is a success, or an error that already has our details. */
function isOurs(headers: OutgoingHttpHeaders): boolean {
  return headers["grpc-status"] === status.OK || headers["grpc-status-details-bin"] !== undefined;
}

/** Whether the response has a gRPC status. If not, the request was not gRPC. */
function hasGrpcStatus(headers: OutgoingHttpHeaders): boolean {
  return headers["grpc-status"] !== undefined;
}

/** The error of the catalogue for an error of grpc-js itself. Undefined for errors from other sources. */
function toCatalogueError(headers: OutgoingHttpHeaders): ApiError | undefined {
  if (!hasGrpcStatus(headers)) {
    return unsupportedMediaType("This port serves gRPC: send `Content-Type: application/grpc`.");
  }
  const cause = causeOf(String(headers["grpc-message"]).replaceAll("%20", " "));
  return cause && errorsByCause[cause]();
}

const bodyError = (message: string) => invalidInput([{ location: "body", message }]);
const notOneMessage = () => bodyError("must contain exactly one gRPC message");

const errorsByCause: Readonly<Record<GrpcJsErrorCause, () => ApiError>> = {
  compressed: compressedRequest,
  notOneMessage,
  undecodable: () => bodyError("is not a valid request message of this method"),
  unknownMethod: routeNotFound,
};
