import type { IncomingMessage } from "node:http";
import { toBinary, toJson } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { type ApiError, grpcStatusOf, retryAfterOf } from "../../errors.js";
import { detailsOf, toStatusBytes } from "../../rpc/status.js";
import { contentTypeOf, formatOf } from "./body.js";

/** An error as the response to an RPC. */
export interface ErrorResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** Encodes an error in the protocol of the request; undefined if it uses none of the RPC protocols. */
export function toErrorResponse(
  request: IncomingMessage,
  error: ApiError,
  requestId: string,
): ErrorResponse | undefined {
  const format = formatOf(request);
  if (format === undefined || request.method !== "POST") return undefined;
  return format.framed ? toGrpcWebError(error, requestId, contentTypeOf(format)) : toConnectError(error, requestId);
}

/** A response without a message, whose trailers are sent as headers. */
function toGrpcWebError(error: ApiError, requestId: string, contentType: string): ErrorResponse {
  const retryAfter = retryAfterOf(error);
  const headers = {
    "content-type": contentType,
    "grpc-status": `${grpcStatusOf(error.code)}`,
    "grpc-message": encodeURIComponent(error.detail),
    "grpc-status-details-bin": toBase64(toStatusBytes(error, requestId)),
    ...(retryAfter && { "retry-after": retryAfter }),
    ...(error.options.acceptEncoding && { "grpc-accept-encoding": error.options.acceptEncoding }),
  };
  return { status: 200, headers, body: "" };
}

/** https://connectrpc.com/docs/protocol#error-end-stream */
function toConnectError(error: ApiError, requestId: string): ErrorResponse {
  const [code, status] = codes[grpcStatusOf(error.code)];
  const details = detailsOf(error, requestId).map(({ desc, value }) => ({
    type: desc.typeName,
    debug: toJson(desc, value),
    value: toBase64(toBinary(desc, value)),
  }));
  const body = JSON.stringify({ code, message: error.detail, details });
  return { status, headers: { "content-type": "application/json" }, body };
}

/** Without padding, as both protocols recommend. */
function toBase64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("base64").replace(/=+$/, "");
}

/** The name and the HTTP status of each code: https://connectrpc.com/docs/protocol#error-codes */
const codes: Readonly<Record<Code, readonly [name: string, status: number]>> = {
  [Code.Canceled]: ["canceled", 499],
  [Code.Unknown]: ["unknown", 500],
  [Code.InvalidArgument]: ["invalid_argument", 400],
  [Code.DeadlineExceeded]: ["deadline_exceeded", 504],
  [Code.NotFound]: ["not_found", 404],
  [Code.AlreadyExists]: ["already_exists", 409],
  [Code.PermissionDenied]: ["permission_denied", 403],
  [Code.ResourceExhausted]: ["resource_exhausted", 429],
  [Code.FailedPrecondition]: ["failed_precondition", 400],
  [Code.Aborted]: ["aborted", 409],
  [Code.OutOfRange]: ["out_of_range", 400],
  [Code.Unimplemented]: ["unimplemented", 501],
  [Code.Internal]: ["internal", 500],
  [Code.Unavailable]: ["unavailable", 503],
  [Code.DataLoss]: ["data_loss", 500],
  [Code.Unauthenticated]: ["unauthenticated", 401],
};
