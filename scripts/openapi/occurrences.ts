import { ErrorCode } from "../../gen/latchkey/v1/errors_pb.js";
import {
  credentialMalformed,
  credentialMissing,
  deadlineExceeded,
  type Failure,
  type FailureCode,
  identityAlreadyExists,
  identityNotFound,
  invalidInput,
  keyDisabled,
  keyExpired,
  keyNotFound,
  keyUnknown,
  mediaTypeUnsupported,
  methodNotAllowed,
  payloadTooLarge,
  permissionLacking,
  routeNotFound,
  serviceUnavailable,
  unexpectedError,
  workspaceDisabled,
  workspaceNotFound,
} from "../../src/errors.js";
import { largestMessage } from "../../src/rpc/pipeline.js";

/** One occurrence of each failure, in the very words of the service. */
export const occurrences: Record<FailureCode, Failure> = {
  [ErrorCode.AUTHENTICATION_MISSING]: credentialMissing(),
  [ErrorCode.AUTHENTICATION_MALFORMED]: credentialMalformed(
    "The credential is not an API key: its form or its checksum is wrong. Copy it again.",
  ),
  [ErrorCode.AUTHENTICATION_KEY_NOT_FOUND]: keyUnknown(),
  [ErrorCode.AUTHENTICATION_KEY_EXPIRED]: keyExpired(),
  [ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED]: workspaceDisabled(),
  [ErrorCode.AUTHORIZATION_KEY_DISABLED]: keyDisabled(),
  [ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS]: permissionLacking("keys.read"),
  [ErrorCode.DATA_IDENTITY_NOT_FOUND]: identityNotFound(),
  [ErrorCode.DATA_WORKSPACE_NOT_FOUND]: workspaceNotFound(),
  [ErrorCode.DATA_KEY_NOT_FOUND]: keyNotFound(),
  [ErrorCode.DATA_IDENTITY_ALREADY_EXISTS]: identityAlreadyExists(),
  [ErrorCode.APPLICATION_INVALID_INPUT]: invalidInput([{ location: "surprise", message: "is not a known field" }]),
  [ErrorCode.APPLICATION_ROUTE_NOT_FOUND]: routeNotFound(),
  [ErrorCode.APPLICATION_METHOD_NOT_ALLOWED]: methodNotAllowed("GET", "/v1/keys.listKeys", ["POST"]),
  [ErrorCode.APPLICATION_UNSUPPORTED_MEDIA_TYPE]: mediaTypeUnsupported(
    "The body must be JSON: send it with `Content-Type: application/json`.",
  ),
  [ErrorCode.APPLICATION_PAYLOAD_TOO_LARGE]: payloadTooLarge("body", largestMessage),
  [ErrorCode.APPLICATION_DEADLINE_EXCEEDED]: deadlineExceeded(),
  [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE]: serviceUnavailable(undefined),
  [ErrorCode.APPLICATION_UNEXPECTED_ERROR]: unexpectedError(undefined),
};
