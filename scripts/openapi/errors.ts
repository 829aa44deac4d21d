import { STATUS_CODES } from "node:http";
import type { DescMethod } from "@bufbuild/protobuf";
import { ErrorCode } from "../../gen/latchkey/v1/errors_pb.js";
import { type ApiErrorCode, catalogue, errorCodes, pathOf } from "../../src/errors.js";
import { errorBody, errorMediaType, errorPagePath } from "../../src/http/json/envelope.js";
import { errorDocs } from "../../src/http/pages/error-docs.js";
import { examples } from "../../src/http/pages/examples.js";
import { exampleDocsBase } from "../../src/http/pages/openapi.js";
import type { JsonObject } from "./json.js";

/** Where an error can occur: in every call, in calls with a body, where it is declared, or outside all operations. */
type Occurrence = "call" | "body" | "declared" | "outside";

const occurrences: Record<ApiErrorCode, Occurrence> = {
  [ErrorCode.AUTHENTICATION_MISSING]: "call",
  [ErrorCode.AUTHENTICATION_MALFORMED]: "call",
  [ErrorCode.AUTHENTICATION_KEY_NOT_FOUND]: "call",
  [ErrorCode.AUTHENTICATION_KEY_EXPIRED]: "call",
  [ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED]: "call",
  [ErrorCode.AUTHORIZATION_KEY_DISABLED]: "call",
  [ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS]: "call",
  [ErrorCode.LIMITS_RATE_LIMITED]: "call",
  [ErrorCode.LIMITS_QUOTA_EXCEEDED]: "declared",
  [ErrorCode.DATA_IDENTITY_NOT_FOUND]: "declared",
  [ErrorCode.DATA_WORKSPACE_NOT_FOUND]: "declared",
  [ErrorCode.DATA_WORKSPACE_ENABLED]: "declared",
  [ErrorCode.DATA_KEY_NOT_FOUND]: "declared",
  [ErrorCode.DATA_IDENTITY_ALREADY_EXISTS]: "declared",
  [ErrorCode.DATA_API_NOT_FOUND]: "declared",
  [ErrorCode.DATA_ROLE_NOT_FOUND]: "declared",
  [ErrorCode.DATA_ROLE_ALREADY_EXISTS]: "declared",
  [ErrorCode.DATA_PERMISSION_NOT_FOUND]: "declared",
  [ErrorCode.DATA_PERMISSION_ALREADY_EXISTS]: "declared",
  [ErrorCode.DATA_PERMISSION_IN_USE]: "declared",
  [ErrorCode.DATA_OVERRIDE_NOT_FOUND]: "declared",
  [ErrorCode.DATA_IDEMPOTENCY_CONFLICT]: "declared",
  [ErrorCode.APPLICATION_INVALID_INPUT]: "call",
  [ErrorCode.APPLICATION_ROUTE_NOT_FOUND]: "outside",
  [ErrorCode.APPLICATION_METHOD_NOT_ALLOWED]: "outside",
  [ErrorCode.APPLICATION_UNSUPPORTED_MEDIA_TYPE]: "body",
  [ErrorCode.APPLICATION_PAYLOAD_TOO_LARGE]: "call",
  [ErrorCode.APPLICATION_DEADLINE_EXCEEDED]: "call",
  [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE]: "call",
  [ErrorCode.APPLICATION_UNEXPECTED_ERROR]: "call",
};

/** The header of every response. */
export const requestIdHeader = { "X-Request-Id": { $ref: "#/components/headers/X-Request-Id" } };

/** The response headers of a counted request, if rate limiting is enabled. */
export const rateLimitHeaders = {
  "RateLimit-Policy": { $ref: "#/components/headers/RateLimit-Policy" },
  RateLimit: { $ref: "#/components/headers/RateLimit" },
};

/** The headers of error responses by status, as the HTTP gateway sends them. */
const headers: Record<number, JsonObject> = {
  401: { "WWW-Authenticate": { $ref: "#/components/headers/WWW-Authenticate" } },
  405: { Allow: { $ref: "#/components/headers/Allow" } },
  429: { ...rateLimitHeaders, "Retry-After": { $ref: "#/components/headers/Retry-After" } },
  503: { "Retry-After": { $ref: "#/components/headers/Retry-After" } },
};

/** The name of the response for unknown paths and methods. */
const noOperationName = "NoSuchOperation";

/** The errors of an operation: those of every call, those of a body if it has one, and those that it declares. */
export function errorsOf(takesBody: boolean, declared: readonly ApiErrorCode[]): ApiErrorCode[] {
  return errorCodes.filter((code) => {
    const occurrence = occurrences[code];
    return occurrence === "call" || (occurrence === "body" && takesBody) || declared.includes(code);
  });
}

/**
 * The error responses of an operation by status. The default response is for errors outside all operations. Responses
 * with a declared error or a media type of the operation's own are specific to it; the others are shared components.
 */
export function errorResponses(codes: readonly ApiErrorCode[], method?: DescMethod): JsonObject {
  const isOwn = (code: ApiErrorCode) =>
    occurrences[code] === "declared" || errorMediaType(code, method) !== errorMediaType(code, undefined);
  const own = [...byStatus(codes)].map(([status, sameStatus]) => [
    status,
    sameStatus.some(isOwn)
      ? errorResponse(sameStatus, method)
      : { $ref: `#/components/responses/${responseName(status)}` },
  ]);
  return { ...Object.fromEntries(own), default: { $ref: `#/components/responses/${noOperationName}` } };
}

/** The shared responses. */
export const sharedResponses: JsonObject = {
  ...Object.fromEntries(
    [...byStatus(errorsOf(true, []))].map(([status, codes]) => [responseName(status), errorResponse(codes)]),
  ),
  [noOperationName]: errorResponse(errorCodes.filter((code) => occurrences[code] === "outside")),
};

function byStatus(codes: readonly ApiErrorCode[]): Map<number, ApiErrorCode[]> {
  const statuses = [...new Set(codes.map((code) => catalogue[code].status))].sort();
  return new Map(statuses.map((status) => [status, codes.filter((code) => catalogue[code].status === status)]));
}

/** `PayloadTooLarge` */
function responseName(status: number): string {
  return (STATUS_CODES[status] ?? "").replaceAll(" ", "");
}

function errorResponse(codes: readonly ApiErrorCode[], method?: DescMethod): JsonObject {
  const mediaTypes = [...new Set(codes.map((code) => errorMediaType(code, method)))];
  return {
    description: codes
      .map((code) => `[\`${pathOf(code)}\`](${errorPagePath(pathOf(code))}): ${errorDocs[code].when}`)
      .join("\n\n"),
    headers: Object.assign({}, requestIdHeader, ...codes.map((code) => headers[catalogue[code].status])),
    content: Object.fromEntries(
      mediaTypes.map((mediaType) => [
        mediaType,
        failureContent(codes.filter((code) => errorMediaType(code, method) === mediaType)),
      ]),
    ),
  };
}

function failureContent(codes: readonly ApiErrorCode[]): JsonObject {
  const keys = codes.map((code) => keyOf(pathOf(code)));
  return {
    schema: { $ref: "#/components/schemas/Failure" },
    examples: Object.fromEntries(keys.map((key) => [key, { $ref: `#/components/examples/${key}` }])),
  };
}

/** One example for every error of the catalogue, encoded by the gateway's own code. */
export const errorExamples: JsonObject = Object.fromEntries(
  errorCodes.map((code) => [
    keyOf(pathOf(code)),
    {
      summary: pathOf(code),
      value: JSON.parse(
        errorBody(examples[code].answer, "req_01jd9x2m5te4btvz7p3k8n6qwc", exampleDocsBase),
      ) as JsonObject,
    },
  ]),
);

/** All errors as a Markdown table, by status. */
export const errorTable = [
  "| Status | Error | When |",
  "|---|---|---|",
  ...[...byStatus(errorCodes).values()].flat().map((code) => {
    const { when } = errorDocs[code];
    return `| ${catalogue[code].status} | [\`${pathOf(code)}\`](${errorPagePath(pathOf(code))}) | ${when} |`;
  }),
].join("\n");

/** Component names must not contain a slash. */
function keyOf(path: string): string {
  return path.replace("/", ".");
}
