import { status } from "@grpc/grpc-js";
import { expect } from "vitest";
import type { BadRequest, ErrorInfo } from "../../../gen/google/rpc/error_details_pb.js";
import { keep } from "../artifacts.js";
import type { PaginationResponse } from "../responses.js";

/** The outcome of a call, in a form that is comparable between protocols. */
export type Outcome = Success | Refusal;

/** A call that succeeded. */
export interface Success {
  readonly ok: true;
  readonly data: unknown;
  readonly pagination?: PaginationResponse;
}

/** A call that was refused. */
export interface Refusal {
  readonly ok: false;
  /** `<category>/<code>`. */
  readonly code: string;
  readonly detail: string;
  /** Only for invalid input: the error of each field. */
  readonly fields?: readonly { location: string; message: string }[];
}

/** The format of a request id. */
export const requestIdForm = /^req_[0-9a-z]{26}$/;

/** The errors of API.md, section 5. */
export const errorTable: Readonly<Record<string, { http: number; title: string; grpc: number }>> = {
  "authentication/missing": { http: 401, title: "Unauthorized", grpc: status.UNAUTHENTICATED },
  "authentication/malformed": { http: 401, title: "Unauthorized", grpc: status.UNAUTHENTICATED },
  "authentication/key_not_found": { http: 401, title: "Unauthorized", grpc: status.UNAUTHENTICATED },
  "authentication/key_expired": { http: 401, title: "Unauthorized", grpc: status.UNAUTHENTICATED },
  "authorization/workspace_disabled": { http: 403, title: "Forbidden", grpc: status.PERMISSION_DENIED },
  "authorization/key_disabled": { http: 403, title: "Forbidden", grpc: status.PERMISSION_DENIED },
  "authorization/insufficient_permissions": { http: 403, title: "Forbidden", grpc: status.PERMISSION_DENIED },
  "limits/rate_limited": { http: 429, title: "Too Many Requests", grpc: status.RESOURCE_EXHAUSTED },
  "limits/quota_exceeded": { http: 403, title: "Forbidden", grpc: status.RESOURCE_EXHAUSTED },
  "data/identity_not_found": { http: 404, title: "Not Found", grpc: status.NOT_FOUND },
  "data/key_not_found": { http: 404, title: "Not Found", grpc: status.NOT_FOUND },
  "data/workspace_not_found": { http: 404, title: "Not Found", grpc: status.NOT_FOUND },
  "data/workspace_enabled": { http: 409, title: "Conflict", grpc: status.FAILED_PRECONDITION },
  "data/identity_already_exists": { http: 409, title: "Conflict", grpc: status.ALREADY_EXISTS },
  "data/api_not_found": { http: 404, title: "Not Found", grpc: status.NOT_FOUND },
  "data/role_not_found": { http: 404, title: "Not Found", grpc: status.NOT_FOUND },
  "data/role_already_exists": { http: 409, title: "Conflict", grpc: status.ALREADY_EXISTS },
  "data/permission_not_found": { http: 404, title: "Not Found", grpc: status.NOT_FOUND },
  "data/permission_already_exists": { http: 409, title: "Conflict", grpc: status.ALREADY_EXISTS },
  "data/permission_in_use": { http: 409, title: "Conflict", grpc: status.FAILED_PRECONDITION },
  "data/override_not_found": { http: 404, title: "Not Found", grpc: status.NOT_FOUND },
  "data/idempotency_conflict": { http: 409, title: "Conflict", grpc: status.ALREADY_EXISTS },
  "application/invalid_input": { http: 400, title: "Bad Request", grpc: status.INVALID_ARGUMENT },
  "application/unsupported_media_type": { http: 415, title: "Unsupported Media Type", grpc: status.UNIMPLEMENTED },
  "application/payload_too_large": { http: 413, title: "Payload Too Large", grpc: status.RESOURCE_EXHAUSTED },
  "application/deadline_exceeded": { http: 504, title: "Gateway Timeout", grpc: status.DEADLINE_EXCEEDED },
  "application/service_unavailable": { http: 503, title: "Service Unavailable", grpc: status.UNAVAILABLE },
};

/** An error as gRPC, gRPC-Web and Connect clients receive it. */
export interface GrpcError {
  readonly grpcCode: number;
  readonly message: string;
  readonly info: ErrorInfo | undefined;
  readonly badRequest: BadRequest | undefined;
  /** The request id outside the error details. */
  readonly requestId: string | undefined;
}

/** Checks that an error has the documented form, and converts it. */
export function toRefusal({ grpcCode, message, info, badRequest, requestId }: GrpcError): Refusal {
  keep("refusals", JSON.stringify([message, info, badRequest]));
  expect(info, `an ErrorInfo in the details of: ${message}`).toBeDefined();
  const found = Object.entries(errorTable).find(
    ([code, { grpc }]) => grpc === grpcCode && info?.reason === code.split("/")[1]?.toUpperCase(),
  );
  const code = found?.[0];
  expect(code, `gRPC status ${grpcCode} with reason ${info?.reason} is a row of the error table`).toBeDefined();
  expect(info?.domain).toBe("latchkey");
  expect(info?.metadata["requestId"]).toMatch(requestIdForm);
  expect(requestId, "x-request-id").toBe(info?.metadata["requestId"]);
  expect(message).not.toBe("");
  expect(badRequest !== undefined, "only invalid input has a BadRequest").toBe(code === "application/invalid_input");
  const fields = badRequest?.fieldViolations.map(({ field, description }) => ({
    location: field,
    message: description,
  }));
  return { ok: false, code: String(code), detail: message, ...(fields && { fields }) };
}
