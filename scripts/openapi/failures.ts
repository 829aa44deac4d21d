import { STATUS_CODES } from "node:http";
import { ErrorCode } from "../../gen/latchkey/v1/errors_pb.js";
import {
  catalogue,
  credentialMalformed,
  credentialMissing,
  deadlineExceeded,
  type Failure,
  type FailureCode,
  failureCodes,
  identityAlreadyExists,
  identityNotFound,
  invalidInput,
  keyDisabled,
  keyExpired,
  keyNotFound,
  keyUnknown,
  mediaTypeUnsupported,
  methodNotAllowed,
  pathOf,
  payloadTooLarge,
  permissionLacking,
  routeNotFound,
  serviceUnavailable,
  unexpectedError,
  workspaceDisabled,
  workspaceNotFound,
} from "../../src/errors.js";
import { errorPagePath, failureBody } from "../../src/gateway/envelope.js";
import { exampleDocsBase } from "../../src/gateway/reference.js";
import { largestMessage } from "../../src/rpc/pipeline.js";
import type { JsonObject } from "./json.js";

/** Where a failure can occur: in every call, in those with a body, where it is declared, or outside all operations. */
type Reach = "call" | "body" | "declared" | "outside";

/** How far each failure reaches, and one occurrence of it. A code of the catalogue without a row does not compile. */
const failures: Record<FailureCode, readonly [Reach, Failure]> = {
  [ErrorCode.AUTHENTICATION_MISSING]: ["call", credentialMissing()],
  [ErrorCode.AUTHENTICATION_MALFORMED]: [
    "call",
    credentialMalformed("The API key's checksum is wrong: it was altered."),
  ],
  [ErrorCode.AUTHENTICATION_KEY_NOT_FOUND]: ["call", keyUnknown()],
  [ErrorCode.AUTHENTICATION_KEY_EXPIRED]: ["call", keyExpired()],
  [ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED]: ["call", workspaceDisabled()],
  [ErrorCode.AUTHORIZATION_KEY_DISABLED]: ["call", keyDisabled()],
  [ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS]: ["call", permissionLacking("keys.read")],
  [ErrorCode.DATA_IDENTITY_NOT_FOUND]: ["declared", identityNotFound()],
  [ErrorCode.DATA_WORKSPACE_NOT_FOUND]: ["declared", workspaceNotFound()],
  [ErrorCode.DATA_KEY_NOT_FOUND]: ["declared", keyNotFound()],
  [ErrorCode.DATA_IDENTITY_ALREADY_EXISTS]: ["declared", identityAlreadyExists()],
  [ErrorCode.APPLICATION_INVALID_INPUT]: [
    "call",
    invalidInput([{ location: "surprise", message: "is not a known field" }]),
  ],
  [ErrorCode.APPLICATION_ROUTE_NOT_FOUND]: ["outside", routeNotFound()],
  [ErrorCode.APPLICATION_METHOD_NOT_ALLOWED]: ["outside", methodNotAllowed("GET", "/v2/keys.getKey", ["POST"])],
  [ErrorCode.APPLICATION_UNSUPPORTED_MEDIA_TYPE]: [
    "body",
    mediaTypeUnsupported("The body must be JSON: send it with `Content-Type: application/json`."),
  ],
  [ErrorCode.APPLICATION_PAYLOAD_TOO_LARGE]: ["call", payloadTooLarge("body", largestMessage)],
  [ErrorCode.APPLICATION_DEADLINE_EXCEEDED]: ["call", deadlineExceeded()],
  [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE]: ["call", serviceUnavailable(undefined)],
  [ErrorCode.APPLICATION_UNEXPECTED_ERROR]: ["call", unexpectedError(undefined)],
};

/** The header that every answer has. */
export const requestIdHeader = { "X-Request-Id": { $ref: "#/components/headers/X-Request-Id" } };

/** The headers that come with a status, as `failureHeaders` of the gateway writes them. */
const headers: Record<number, JsonObject> = {
  401: { "WWW-Authenticate": { $ref: "#/components/headers/WWW-Authenticate" } },
  405: { Allow: { $ref: "#/components/headers/Allow" } },
  503: { "Retry-After": { $ref: "#/components/headers/Retry-After" } },
};

/** The name of the response to what is no operation. */
const outsideName = "NoSuchOperation";

/** The failures of an operation: those of every call, those of a body if it takes one, and those that it declares. */
export function failuresOf(takesBody: boolean, declared: readonly FailureCode[]): FailureCode[] {
  return failureCodes.filter((code) => {
    const [reach] = failures[code];
    return reach === "call" || (reach === "body" && takesBody) || declared.includes(code);
  });
}

/**
 * What an operation answers when it fails, by status; by default, what lies outside all operations. Only responses with a
 * failure that was declared are the operation's own; the others are described once for all.
 */
export function failureResponses(codes: readonly FailureCode[]): JsonObject {
  const own = [...byStatus(codes)].map(([status, sameStatus]) => [
    status,
    sameStatus.some((code) => failures[code][0] === "declared")
      ? failureResponse(sameStatus)
      : { $ref: `#/components/responses/${responseName(status)}` },
  ]);
  return { ...Object.fromEntries(own), default: { $ref: `#/components/responses/${outsideName}` } };
}

/** The responses that are described once for all. */
export const sharedResponses: JsonObject = {
  ...Object.fromEntries(
    [...byStatus(failuresOf(true, []))].map(([status, codes]) => [responseName(status), failureResponse(codes)]),
  ),
  [outsideName]: failureResponse(failureCodes.filter((code) => failures[code][0] === "outside")),
};

function byStatus(codes: readonly FailureCode[]): Map<number, FailureCode[]> {
  const statuses = [...new Set(codes.map((code) => catalogue[code].status))].sort();
  return new Map(statuses.map((status) => [status, codes.filter((code) => catalogue[code].status === status)]));
}

/** `PayloadTooLarge` */
function responseName(status: number): string {
  return (STATUS_CODES[status] ?? "").replaceAll(" ", "");
}

function failureResponse(codes: readonly FailureCode[]): JsonObject {
  const names = codes.map(pathOf);
  return {
    description: codes
      .map((code) => `[\`${pathOf(code)}\`](${errorPagePath(pathOf(code))}): ${catalogue[code].when}`)
      .join("\n\n"),
    headers: Object.assign({}, requestIdHeader, ...codes.map((code) => headers[catalogue[code].status])),
    content: {
      "application/json": {
        schema: { $ref: "#/components/schemas/Failure" },
        examples: Object.fromEntries(
          names.map((name) => [keyOf(name), { $ref: `#/components/examples/${keyOf(name)}` }]),
        ),
      },
    },
  };
}

/** One example for every failure of the catalogue: the very envelope that the gateway writes. */
export const failureExamples: JsonObject = Object.fromEntries(
  failureCodes.map((code) => [
    keyOf(pathOf(code)),
    {
      summary: pathOf(code),
      value: JSON.parse(
        failureBody(failures[code][1], "req_01jd9x2m5te4btvz7p3k8n6qwc", exampleDocsBase),
      ) as JsonObject,
    },
  ]),
);

/** All failures as a Markdown table, by their status. */
export const failureTable = [
  "| Status | Failure | When |",
  "|---|---|---|",
  ...[...byStatus(failureCodes).values()].flat().map((code) => {
    const { status, when } = catalogue[code];
    return `| ${status} | [\`${pathOf(code)}\`](${errorPagePath(pathOf(code))}) | ${when} |`;
  }),
].join("\n");

/** The names of components have no slash. */
function keyOf(path: string): string {
  return path.replace("/", ".");
}
