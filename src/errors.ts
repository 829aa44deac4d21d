import { STATUS_CODES } from "node:http";
import { Code } from "@connectrpc/connect";
import { ErrorCode } from "../gen/latchkey/v1/errors_pb.js";

/** A code of the catalogue: every ErrorCode that is ever sent. */
export type FailureCode = Exclude<ErrorCode, ErrorCode.UNSPECIFIED>;

/** What the catalogue knows about one kind of failure. */
export interface CatalogueEntry {
  /** The HTTP status. */
  readonly status: number;
  /** The gRPC status, also used by Connect and gRPC-Web; undefined for what only plain HTTP knows. */
  readonly grpc: Code | undefined;
  /** When it happens, as a sentence. */
  readonly when: string;
  /** What the caller can do about it. */
  readonly remedy: string;
}

/**
 * Every way in which a call can fail. This is the only place that knows which status a failure has; a code of the
 * proto without a row here does not compile.
 */
export const catalogue: Record<FailureCode, CatalogueEntry> = {
  [ErrorCode.AUTHENTICATION_MISSING]: {
    status: 401,
    grpc: Code.Unauthenticated,
    when: "The request carries no Authorization header.",
    remedy: "Send the header `Authorization: Bearer <API_KEY>`; over gRPC, the metadata `authorization`.",
  },
  [ErrorCode.AUTHENTICATION_MALFORMED]: {
    status: 401,
    grpc: Code.Unauthenticated,
    when: "The Authorization header is not `Bearer <API_KEY>`, or the key's form or checksum is wrong.",
    remedy:
      "Copy the whole key again, without quotes, spaces or line breaks, and send exactly one Authorization header.",
  },
  [ErrorCode.AUTHENTICATION_KEY_NOT_FOUND]: {
    status: 401,
    grpc: Code.Unauthenticated,
    when: "The key has the right form, but this service knows no such key, or it was deleted.",
    remedy: "Check that the key belongs to this installation; if it was deleted, create another with keys.createKey.",
  },
  [ErrorCode.AUTHENTICATION_KEY_EXPIRED]: {
    status: 401,
    grpc: Code.Unauthenticated,
    when: "The key is past its expiry.",
    remedy: "Create another key with keys.createKey and use that one.",
  },
  [ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED]: {
    status: 403,
    grpc: Code.PermissionDenied,
    when: "The workspace tied to the API key is disabled. Every key of the workspace is refused, whatever its own state.",
    remedy:
      "Ask the operator of the service why the workspace is disabled. Once it is enabled again, its keys work, except those that are individually disabled.",
  },
  [ErrorCode.AUTHORIZATION_KEY_DISABLED]: {
    status: 403,
    grpc: Code.PermissionDenied,
    when: "The key is individually disabled.",
    remedy: "Use another key of the workspace.",
  },
  [ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS]: {
    status: 403,
    grpc: Code.PermissionDenied,
    when: "The credential may not do this: a key lacks the permission, or the operation is for another kind of credential.",
    remedy:
      "Use a key that holds the permission named in the error. Workspace operations need the operator's credential; all others need a key of the workspace.",
  },
  [ErrorCode.DATA_IDENTITY_NOT_FOUND]: {
    status: 404,
    grpc: Code.NotFound,
    when: "The identity does not exist in the caller's workspace: the identifier is mistyped, its letter case differs, the identity was deleted, or it belongs to another workspace.",
    remedy:
      "Find the right identifier with identities.listIdentities; if the identity was deleted, create it again with identities.createIdentity.",
  },
  [ErrorCode.DATA_KEY_NOT_FOUND]: {
    status: 404,
    grpc: Code.NotFound,
    when: "The key does not exist in the caller's workspace: the identifier is mistyped, the key was deleted, or it belongs to another workspace.",
    remedy: "Find the right identifier with keys.listKeys.",
  },
  [ErrorCode.DATA_WORKSPACE_NOT_FOUND]: {
    status: 404,
    grpc: Code.NotFound,
    when: "There is no workspace with this identifier.",
    remedy: "Find the right identifier with workspaces.listWorkspaces.",
  },
  [ErrorCode.DATA_IDENTITY_ALREADY_EXISTS]: {
    status: 409,
    grpc: Code.AlreadyExists,
    when: "The workspace has an identity with this externalId already.",
    remedy: "Use that identity (identities.getIdentity takes the externalId), or choose another externalId.",
  },
  [ErrorCode.APPLICATION_INVALID_INPUT]: {
    status: 400,
    grpc: Code.InvalidArgument,
    when: "The body, the query or a field is not as documented. `error.errors` names each field and what is wrong with it.",
    remedy: "Mend the named fields and send the request again; nothing was stored.",
  },
  [ErrorCode.APPLICATION_ROUTE_NOT_FOUND]: {
    status: 404,
    grpc: Code.Unimplemented,
    when: "There is no such path.",
    remedy: "Check the path, its version (/v1 or /v2) and its letter case.",
  },
  [ErrorCode.APPLICATION_METHOD_NOT_ALLOWED]: {
    status: 405,
    grpc: undefined,
    when: "The path exists, but not for this HTTP method.",
    remedy: "Use a method that the `Allow` header names.",
  },
  [ErrorCode.APPLICATION_UNSUPPORTED_MEDIA_TYPE]: {
    status: 415,
    grpc: undefined,
    when: "The request body is not declared as plain, uncompressed JSON.",
    remedy: "Send `Content-Type: application/json` and no `Content-Encoding`.",
  },
  [ErrorCode.APPLICATION_PAYLOAD_TOO_LARGE]: {
    status: 413,
    grpc: Code.ResourceExhausted,
    when: "The request is larger than the service accepts.",
    remedy: "Send less, for instance a smaller `meta`.",
  },
  [ErrorCode.APPLICATION_DEADLINE_EXCEEDED]: {
    status: 504,
    grpc: Code.DeadlineExceeded,
    when: "The call took longer than its deadline. Whether a change took effect is not known.",
    remedy: "Read the state, then try again; over gRPC, allow a longer deadline.",
  },
  [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE]: {
    status: 503,
    grpc: Code.Unavailable,
    when: "The service cannot reach its database just now, so it cannot judge the key; it never lets a call pass unjudged. Or, where its readiness was asked for, it is about to stop.",
    remedy: "Try again after the seconds that `Retry-After` names.",
  },
  [ErrorCode.APPLICATION_UNEXPECTED_ERROR]: {
    status: 500,
    grpc: Code.Internal,
    when: "Something failed that should not. The cause is in the service's log, beside the request id.",
    remedy: "Try again; if it stays, report the request id to the operator of the service.",
  },
};

/** All codes of the catalogue, in the order of the proto. */
export const failureCodes = Object.keys(catalogue).map((code) => Number(code) as FailureCode);

/** `<category>/<code>` as it ends the error's type URL: the enum's name carries both. */
export function pathOf(code: FailureCode): string {
  return ErrorCode[code].toLowerCase().replace("_", "/");
}

/** The code alone, in UPPER_SNAKE: the reason of a google.rpc.ErrorInfo. */
export function reasonOf(code: FailureCode): string {
  return ErrorCode[code].slice(ErrorCode[code].indexOf("_") + 1);
}

/** The gRPC status of a failure. */
export function grpcStatusOf(code: FailureCode): Code {
  return catalogue[code].grpc ?? Code.Unknown;
}

/** The standard reason phrase of the code's HTTP status. */
export function titleOf(code: FailureCode): string {
  return STATUS_CODES[catalogue[code].status] ?? "";
}

/** What is wrong with one field of the input. */
export interface FieldError {
  /** The field's path as the caller wrote it, such as `permissions[0]`; `body` for the whole. */
  readonly location: string;
  /** What is wrong and how to mend it. */
  readonly message: string;
}

/** A failure that the caller is told about. Anything may throw one; each door translates it once. */
export class Failure extends Error {
  override readonly name = "Failure";

  constructor(
    readonly code: FailureCode,
    readonly detail: string,
    readonly more: {
      readonly fields?: readonly FieldError[];
      readonly allow?: readonly string[];
      readonly cause?: unknown;
    } = {},
  ) {
    super(detail, { cause: more.cause });
  }
}

export const credentialMissing = () =>
  new Failure(
    ErrorCode.AUTHENTICATION_MISSING,
    "The request carries no credential: send the header `Authorization: Bearer <API_KEY>`.",
  );

export const credentialMalformed = (why: string) => new Failure(ErrorCode.AUTHENTICATION_MALFORMED, why);

export const keyUnknown = () =>
  new Failure(ErrorCode.AUTHENTICATION_KEY_NOT_FOUND, "This API key does not exist, or it was deleted.");

export const keyExpired = () => new Failure(ErrorCode.AUTHENTICATION_KEY_EXPIRED, "This API key has expired.");

export const workspaceDisabled = () =>
  new Failure(ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED, "The workspace tied to this API key is disabled.");

export const keyDisabled = () => new Failure(ErrorCode.AUTHORIZATION_KEY_DISABLED, "This API key is disabled.");

export const permissionLacking = (permission: string) =>
  new Failure(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    `This operation needs an API key with the permission \`${permission}\`.`,
  );

export const operatorOnly = () =>
  new Failure(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    "This operation is for the operator of the service: it needs the operator's credential, not an API key.",
  );

export const grantExceeded = (permission: string) =>
  new Failure(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    `A key can grant only what it holds itself, and this API key does not hold \`${permission}\`.`,
  );

export const rerollExceeded = () =>
  new Failure(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    "A key can reroll only keys that hold nothing it does not hold itself.",
  );

export const identityNotFound = () =>
  new Failure(
    ErrorCode.DATA_IDENTITY_NOT_FOUND,
    "The requested identity could not be found in this workspace. Check the identifier and its letter case.",
  );

export const keyNotFound = () =>
  new Failure(ErrorCode.DATA_KEY_NOT_FOUND, "The requested key could not be found in this workspace.");

export const workspaceNotFound = () =>
  new Failure(ErrorCode.DATA_WORKSPACE_NOT_FOUND, "The requested workspace could not be found.");

export const identityAlreadyExists = () =>
  new Failure(
    ErrorCode.DATA_IDENTITY_ALREADY_EXISTS,
    "An identity with this externalId already exists in this workspace.",
  );

export const invalidInput = (all: readonly FieldError[]) => {
  // Bounded: an answer must fit into the trailers of a gRPC call, however many mistakes a request has.
  const fields = all.slice(0, 10).map(({ location, message }) => ({ location: clipped(location), message }));
  const sentences = fields.map(({ location, message }) => `${location} ${message}`);
  if (all.length > fields.length) sentences.push(`and ${all.length - fields.length} more mistakes`);
  return new Failure(ErrorCode.APPLICATION_INVALID_INPUT, `The request is not valid: ${sentences.join("; ")}.`, {
    fields,
  });
};

function clipped(text: string): string {
  return text.length <= 100 ? text : `${text.slice(0, 100)}…`;
}

export const routeNotFound = () =>
  new Failure(
    ErrorCode.APPLICATION_ROUTE_NOT_FOUND,
    "There is nothing at this path. Check its spelling, its version (/v1 or /v2) and its letter case.",
  );

export const methodNotAllowed = (method: string, path: string, allow: readonly string[]) =>
  new Failure(
    ErrorCode.APPLICATION_METHOD_NOT_ALLOWED,
    `${path} does not take ${method}; it takes ${allow.join(", ")}.`,
    { allow },
  );

export const mediaTypeUnsupported = (why: string) => new Failure(ErrorCode.APPLICATION_UNSUPPORTED_MEDIA_TYPE, why);

export const payloadTooLarge = (part: "body" | "head", limit: number) =>
  new Failure(ErrorCode.APPLICATION_PAYLOAD_TOO_LARGE, `The request's ${part} is larger than ${limit} bytes.`);

export const deadlineExceeded = () =>
  new Failure(ErrorCode.APPLICATION_DEADLINE_EXCEEDED, "The call took longer than its deadline.");

export const serviceUnavailable = (cause: unknown) =>
  new Failure(
    ErrorCode.APPLICATION_SERVICE_UNAVAILABLE,
    "The service cannot reach its database just now; try again shortly.",
    { cause },
  );

export const serviceStopping = () =>
  new Failure(
    ErrorCode.APPLICATION_SERVICE_UNAVAILABLE,
    "The service is about to stop; another replica is to be asked.",
  );

export const unexpectedError = (cause: unknown) =>
  new Failure(
    ErrorCode.APPLICATION_UNEXPECTED_ERROR,
    "Something went wrong on our side; the cause is in the service's log under this request id.",
    { cause },
  );
