import { STATUS_CODES } from "node:http";
import { Code } from "@connectrpc/connect";
import { ErrorCode } from "../gen/latchkey/v1/errors_pb.js";

/** A code of the catalogue: every ErrorCode that is ever sent. */
export type ApiErrorCode = Exclude<ErrorCode, ErrorCode.UNSPECIFIED>;

/** What kind of failure a code is: how its name begins, such as `data`. */
export type Category = FirstWord<Exclude<keyof typeof ErrorCode, "UNSPECIFIED">>;

type FirstWord<Name> = Name extends `${infer First}_${string}` ? Lowercase<First> : never;

/**
 * What the catalogue knows about one kind of failure. Its sentences are told by the error pages and the README; they
 * mark code with backquotes, as Markdown does.
 */
export interface CatalogueEntry {
  /** The HTTP status. */
  readonly status: number;
  /** The gRPC status, also used by Connect and gRPC-Web; undefined for what only plain HTTP knows. */
  readonly grpc: Code | undefined;
  /** When it happens, as a sentence. */
  readonly when: string;
  /** Why it typically happens, a sentence for each cause. */
  readonly causes: readonly string[];
  /** What the caller can do about it. */
  readonly remedy: string;
  /** Failures that are easily taken for this one, or that come next. */
  readonly seeAlso: readonly ApiErrorCode[];
  /** After how long it is worth another try, where the failure itself does not say. */
  readonly retryAfterMs?: number;
}

/**
 * Every way in which a call can fail. This is the only place that knows which status a failure has; a code of the
 * proto without a row here does not compile.
 */
export const catalogue: Record<ApiErrorCode, CatalogueEntry> = {
  [ErrorCode.AUTHENTICATION_MISSING]: {
    status: 401,
    grpc: Code.Unauthenticated,
    when: "The request carries no Authorization header.",
    causes: [
      "The client has no key configured, so it sends no header at all.",
      "A redirect or a proxy dropped the header: most clients do not carry it to another host.",
      "The key is in the query, in a cookie or in the body. It is read from the header alone.",
    ],
    remedy: "Send the header `Authorization: Bearer <API_KEY>`; over gRPC, the metadata `authorization`.",
    seeAlso: [ErrorCode.AUTHENTICATION_MALFORMED],
  },
  [ErrorCode.AUTHENTICATION_MALFORMED]: {
    status: 401,
    grpc: Code.Unauthenticated,
    when: "The Authorization header is not `Bearer <API_KEY>`, or the key's form or checksum is wrong.",
    causes: [
      "The variable that should hold the key is empty, so nothing follows the word `Bearer`.",
      "The word `Bearer` is missing, or another scheme such as `Basic` is used.",
      "The key was cut or altered on its way: its last six characters are a checksum of the rest.",
      "It is the credential of something else: another service's key, or the operator's credential of another installation.",
      "The request carries more than one Authorization header.",
    ],
    remedy:
      "Copy the whole key again, without quotes, spaces or line breaks, and send exactly one Authorization header.",
    seeAlso: [ErrorCode.AUTHENTICATION_MISSING, ErrorCode.AUTHENTICATION_KEY_NOT_FOUND],
  },
  [ErrorCode.AUTHENTICATION_KEY_NOT_FOUND]: {
    status: 401,
    grpc: Code.Unauthenticated,
    when: "The key has the right form, but this service knows no such key, or it was deleted.",
    causes: [
      "The key was deleted with keys.deleteKey.",
      "The key is of another installation: one for testing, for instance, is not known in production.",
      "The database was restored to a time before the key was made.",
    ],
    remedy: "Check that the key belongs to this installation; if it was deleted, create another with keys.createKey.",
    seeAlso: [ErrorCode.AUTHENTICATION_MALFORMED, ErrorCode.AUTHENTICATION_KEY_EXPIRED, ErrorCode.DATA_KEY_NOT_FOUND],
  },
  [ErrorCode.AUTHENTICATION_KEY_EXPIRED]: {
    status: 401,
    grpc: Code.Unauthenticated,
    when: "The key is past its expiry.",
    causes: [
      "The key was given an `expires`, and that time has come.",
      "The key was replaced with keys.rerollKey, and the time for which its old secret went on is over.",
    ],
    remedy: "Create another key with keys.createKey and use that one.",
    seeAlso: [ErrorCode.AUTHENTICATION_KEY_NOT_FOUND, ErrorCode.AUTHORIZATION_KEY_DISABLED],
  },
  [ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED]: {
    status: 403,
    grpc: Code.PermissionDenied,
    when: "The workspace tied to the API key is disabled. Every key of the workspace is refused, whatever its own state.",
    causes: [
      "A bill is unpaid, or a usage limit or quota was exceeded.",
      "The terms of service were violated, or suspicious activity is being investigated.",
      "The owner asked for it, the account is being closed, or the workspace is changing hands.",
    ],
    remedy:
      "Ask the operator of the service why the workspace is disabled. Once it is enabled again, its keys work, except those that are individually disabled.",
    seeAlso: [ErrorCode.AUTHORIZATION_KEY_DISABLED],
  },
  [ErrorCode.AUTHORIZATION_KEY_DISABLED]: {
    status: 403,
    grpc: Code.PermissionDenied,
    when: "The key is individually disabled.",
    causes: [
      "Somebody set `enabled` to false with keys.updateKey, or on the command line.",
      "The key was created disabled, and was not enabled yet.",
    ],
    remedy:
      "Use another key of the workspace; or, with one that holds `keys.update`, enable this one by keys.updateKey with `enabled` true.",
    seeAlso: [ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED, ErrorCode.AUTHENTICATION_KEY_EXPIRED],
  },
  [ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS]: {
    status: 403,
    grpc: Code.PermissionDenied,
    when: "The credential may not do this: a key lacks the scope, or the operation is for another kind of credential.",
    causes: [
      "The key was created without the scope; a key without scopes can be verified, and nothing else. `permissions` are for your own application, and allow nothing here.",
      "The key tries to give a scope that it does not hold, or to change, reroll or delete a key that holds others.",
      "The key tries to enable or prolong itself, or has an expiry and tries to leave a key with scopes that ends later.",
      "A key is used for a workspace operation, or the operator's credential for any other.",
    ],
    remedy:
      "Use a key that holds the scope named in the error. If no key of the workspace does, the operator can make one with workspaces.createRootKey. Workspace operations need the operator's credential; all others need a key of the workspace.",
    seeAlso: [ErrorCode.AUTHORIZATION_KEY_DISABLED, ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED],
  },
  [ErrorCode.LIMITS_RATE_LIMITED]: {
    status: 429,
    grpc: Code.ResourceExhausted,
    when: "The workspace has made as many requests as it may for now. All of its keys, all protocols and all replicas count together.",
    causes: [
      "A client calls in a loop, or tries again at once whenever a call fails.",
      "Several clients share the workspace, and together they ask more often than it may.",
      "The installation sets a limit (`RATE_LIMIT`) that is too low for what the workspace does.",
    ],
    remedy:
      "Try again after the seconds that `Retry-After` names; over gRPC, after the delay of the `RetryInfo`. The header `RateLimit` of every answer says how many requests are left.",
    seeAlso: [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE, ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED],
  },
  [ErrorCode.LIMITS_QUOTA_EXCEEDED]: {
    // Not 429, which clients take for an invitation to try again: no repetition can succeed.
    status: 403,
    grpc: Code.ResourceExhausted,
    when: "The workspace has as many keys or identities, or stores as many bytes, as it may. What takes away is never refused for it: to disable, delete, or give fewer permissions.",
    causes: [
      "Keys or identities are created over and over, and those that are not needed any more are not deleted.",
      "The audit events of many changes count as stored, until they are as old as `AUDIT_RETENTION_DAYS`.",
      "The installation sets a quota (`QUOTA_KEYS`, `QUOTA_IDENTITIES`, `QUOTA_STORED_MB`) that is too low for the workspace.",
    ],
    remedy:
      "Delete keys with keys.deleteKey and identities with identities.deleteIdentity, or ask the operator of the service for a larger quota. Without either, to try again does not help.",
    seeAlso: [ErrorCode.LIMITS_RATE_LIMITED, ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED],
  },
  [ErrorCode.DATA_IDENTITY_NOT_FOUND]: {
    status: 404,
    grpc: Code.NotFound,
    when: "The identity does not exist in the caller's workspace: the identifier is mistyped, its letter case differs, the identity was deleted, or it belongs to another workspace.",
    causes: [
      "The identifier is mistyped, or an `externalId` is sent as an `identityId`.",
      "The letter case differs: an `externalId` is compared byte for byte.",
      "The identity was deleted.",
      "The identity belongs to another workspace than the key that asks.",
    ],
    remedy:
      "Find the right identifier with identities.listIdentities; if the identity was deleted, create it again with identities.createIdentity.",
    seeAlso: [ErrorCode.DATA_IDENTITY_ALREADY_EXISTS, ErrorCode.DATA_KEY_NOT_FOUND],
  },
  [ErrorCode.DATA_KEY_NOT_FOUND]: {
    status: 404,
    grpc: Code.NotFound,
    when: "The key does not exist in the caller's workspace: the identifier is mistyped, the key was deleted, or it belongs to another workspace.",
    causes: [
      "The identifier is mistyped, or it is the `start` or the name of the key.",
      "The key was deleted.",
      "The key belongs to another workspace than the key that asks.",
      "The secret given to keys.whoami is not a key of this workspace.",
    ],
    remedy: "Find the right identifier with keys.listKeys.",
    seeAlso: [ErrorCode.AUTHENTICATION_KEY_NOT_FOUND, ErrorCode.DATA_IDENTITY_NOT_FOUND],
  },
  [ErrorCode.DATA_WORKSPACE_NOT_FOUND]: {
    status: 404,
    grpc: Code.NotFound,
    when: "There is no workspace with this identifier.",
    causes: [
      "The identifier is mistyped, or it is the name of the workspace.",
      "The workspace is of another installation.",
      "A key asks for the audit events of a workspace that is not its own.",
    ],
    remedy: "Find the right identifier with workspaces.listWorkspaces.",
    seeAlso: [ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS, ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED],
  },
  [ErrorCode.DATA_IDENTITY_ALREADY_EXISTS]: {
    status: 409,
    grpc: Code.AlreadyExists,
    when: "The workspace has an identity with this externalId already.",
    causes: [
      "The identity was created before, perhaps by an earlier attempt whose answer was lost.",
      "Two clients create the same identity at once: one succeeds, the other is told this.",
    ],
    remedy:
      "Use that identity (identities.getIdentity takes the externalId), or choose another externalId. A client that sends an `Idempotency-Key` and repeats its request gets its first answer instead of this.",
    seeAlso: [ErrorCode.DATA_IDENTITY_NOT_FOUND, ErrorCode.DATA_IDEMPOTENCY_CONFLICT],
  },
  [ErrorCode.DATA_IDEMPOTENCY_CONFLICT]: {
    status: 409,
    // Not ABORTED, which clients take for an invitation to try again: no repetition can succeed.
    grpc: Code.AlreadyExists,
    when: "The Idempotency-Key was used within the last 24 hours, by the same caller, for another request.",
    causes: [
      "A client uses one `Idempotency-Key` for several changes; each change needs one of its own.",
      "The request was made anew for the second attempt, with a time or a random value in it that differs.",
      "The key was used for another operation.",
    ],
    remedy:
      "To repeat a request, send it unchanged with its key. For another request choose another key, such as a random UUID. Nothing was changed.",
    seeAlso: [ErrorCode.DATA_IDENTITY_ALREADY_EXISTS, ErrorCode.APPLICATION_DEADLINE_EXCEEDED],
  },
  [ErrorCode.APPLICATION_INVALID_INPUT]: {
    status: 400,
    grpc: Code.InvalidArgument,
    when: "The body, the query or a field is not as documented. `error.errors` names the fields and what is wrong with them, ten at most.",
    causes: [
      "A field is missing, has the wrong type, or is out of its bounds.",
      "A field or query parameter is misspelt: unknown ones are refused, not ignored.",
      "The body is not valid JSON, or is not UTF-8.",
      "A cursor was altered, or comes from another list.",
    ],
    remedy: "Mend the named fields and send the request again; nothing was stored.",
    seeAlso: [ErrorCode.APPLICATION_UNSUPPORTED_MEDIA_TYPE, ErrorCode.APPLICATION_PAYLOAD_TOO_LARGE],
  },
  [ErrorCode.APPLICATION_ROUTE_NOT_FOUND]: {
    status: 404,
    grpc: Code.Unimplemented,
    when: "There is no such path.",
    causes: [
      "The path is misspelt: letter case counts, and so does a slash at the end.",
      "The operation is in another version: some are in /v1 and /v2, most in /v2 alone.",
      "Over gRPC, the stubs are newer than the service, or of another one.",
    ],
    remedy: "Check the path, its version (/v1 or /v2) and its letter case.",
    seeAlso: [ErrorCode.APPLICATION_METHOD_NOT_ALLOWED],
  },
  [ErrorCode.APPLICATION_METHOD_NOT_ALLOWED]: {
    status: 405,
    grpc: undefined,
    when: "The path exists, but not for this HTTP method.",
    causes: [
      "Almost every operation takes POST, those that only read included; curl and browsers send GET unless told otherwise.",
      "A redirect turned POST into GET, as many clients do.",
    ],
    remedy: "Use a method that the `Allow` header names.",
    seeAlso: [ErrorCode.APPLICATION_ROUTE_NOT_FOUND],
  },
  [ErrorCode.APPLICATION_UNSUPPORTED_MEDIA_TYPE]: {
    status: 415,
    // As gRPC's protocol wants it for a compression that is not supported.
    grpc: Code.Unimplemented,
    when: "The request body is not declared as plain, uncompressed JSON; over gRPC, it is not gRPC, or it is compressed.",
    causes: [
      "The content type is missing or another: `curl -d` alone sends application/x-www-form-urlencoded.",
      "The body is compressed, or its headers say so.",
    ],
    remedy: "Send `Content-Type: application/json` and no `Content-Encoding`; over gRPC, turn compression off.",
    seeAlso: [ErrorCode.APPLICATION_INVALID_INPUT],
  },
  [ErrorCode.APPLICATION_PAYLOAD_TOO_LARGE]: {
    status: 413,
    grpc: Code.ResourceExhausted,
    when: "The request is larger than the service accepts.",
    causes: [
      "The body is larger than 128 KiB.",
      "The headers together are larger than 16 KiB, often because of cookies, or there are more than 100 of them.",
    ],
    remedy: "Send less, for instance a smaller `meta`.",
    seeAlso: [ErrorCode.APPLICATION_INVALID_INPUT],
  },
  [ErrorCode.APPLICATION_DEADLINE_EXCEEDED]: {
    status: 504,
    grpc: Code.DeadlineExceeded,
    when: "The call took longer than its deadline. Whether a change took effect is not known.",
    causes: [
      "The deadline that the client set, over gRPC or Connect, was shorter than the call took.",
      "The database was slow or overloaded: without a deadline of its own, a call may take 10 seconds.",
      "The request came too slowly: it must be complete within 30 seconds.",
    ],
    remedy:
      "Try again, with the same `Idempotency-Key` if the operation takes one; else read the state first. Over gRPC, allow a longer deadline.",
    seeAlso: [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE],
  },
  [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE]: {
    status: 503,
    grpc: Code.Unavailable,
    when: "The service cannot serve the call just now: its database is out of reach or in trouble, it is asked too much, or it is about to stop; `detail` says which. It never lets a call pass unjudged.",
    causes: [
      "The database is restarting, failing over, or cut off from the service.",
      "The database has no disk space, memory or connection left.",
      "A synchronous standby of the database has not confirmed the change: whether it took effect is not known.",
      "Its readiness was asked for, and it is about to stop.",
      "The service is asked more than it can answer, and turns further calls away before it begins with them.",
    ],
    remedy: "Try again after the seconds that `Retry-After` names; over gRPC, after the delay of the `RetryInfo`.",
    retryAfterMs: 1_000,
    seeAlso: [ErrorCode.APPLICATION_DEADLINE_EXCEEDED, ErrorCode.APPLICATION_UNEXPECTED_ERROR],
  },
  [ErrorCode.APPLICATION_UNEXPECTED_ERROR]: {
    status: 500,
    grpc: Code.Internal,
    when: "Something failed that should not. The cause is in the service's log, beside the request id.",
    causes: [
      "There is a mistake in the service.",
      "The database answers in a way that the service does not know, for instance after its tables were changed by hand.",
    ],
    remedy: "Try again; if it stays, report the request id to the operator of the service.",
    seeAlso: [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE],
  },
};

/** All codes of the catalogue, in the order of the proto. */
export const errorCodes = Object.keys(catalogue).map((code) => Number(code) as ApiErrorCode);

/** `<category>/<code>` as it ends the error's type URL: the enum's name carries both. */
export function pathOf(code: ApiErrorCode): string {
  return ErrorCode[code].toLowerCase().replace("_", "/");
}

/** The category of a code: how its path begins. */
export function categoryOf(code: ApiErrorCode): Category {
  return pathOf(code).replace(/\/.*/, "") as Category;
}

/** The code alone, in UPPER_SNAKE: the reason of a google.rpc.ErrorInfo. */
export function reasonOf(code: ApiErrorCode): string {
  return ErrorCode[code].slice(ErrorCode[code].indexOf("_") + 1);
}

/** The gRPC status of a failure. */
export function grpcStatusOf(code: ApiErrorCode): Code {
  return catalogue[code].grpc ?? Code.Unknown;
}

/** The gRPC status as gRPC spells it, such as NOT_FOUND; undefined for what only plain HTTP knows. */
export function grpcNameOf(code: ApiErrorCode): string | undefined {
  const { grpc } = catalogue[code];
  return grpc && Code[grpc].replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase();
}

/** The standard reason phrase of the code's HTTP status. */
export function titleOf(code: ApiErrorCode): string {
  return STATUS_CODES[catalogue[code].status] ?? "";
}

/** After how long it is worth another try, as every protocol tells it; undefined: it is not said. */
export function retryAfterMsOf({ code, more }: ApiError): number | undefined {
  return more.retryAfterMs ?? catalogue[code].retryAfterMs;
}

/** The same in whole seconds, as HTTP has it. Never too few: who comes too early is refused again. */
export function retryAfterOf(failure: ApiError): string | undefined {
  const ms = retryAfterMsOf(failure);
  return ms === undefined ? undefined : `${Math.max(1, Math.ceil(ms / 1_000))}`;
}

/** What is wrong with one field of the input. */
export interface FieldError {
  /** The field's path as the caller wrote it, such as `permissions[0]`; `body` for the whole. */
  readonly location: string;
  /** What is wrong and how to mend it. */
  readonly message: string;
}

/**
 * A failure that the caller is told about. Anything may throw one; each protocol translates it once. It has no stack: to
 * capture one takes a tenth of the time of a refused call, and only that of an unexpected cause is logged.
 */
export class ApiError extends Error {
  override readonly name = "Failure";

  constructor(
    readonly code: ApiErrorCode,
    readonly detail: string,
    readonly more: {
      readonly fields?: readonly FieldError[];
      readonly allow?: readonly string[];
      readonly acceptEncoding?: string;
      readonly retryAfterMs?: number;
      readonly cause?: unknown;
      readonly cancelled?: boolean;
    } = {},
  ) {
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(detail, { cause: more.cause });
    Error.stackTraceLimit = stackTraceLimit;
  }
}

export const missingCredential = () =>
  new ApiError(
    ErrorCode.AUTHENTICATION_MISSING,
    "The request carries no credential: send the header `Authorization: Bearer <API_KEY>`.",
  );

export const malformedCredential = (why: string) => new ApiError(ErrorCode.AUTHENTICATION_MALFORMED, why);

export const unknownKey = () =>
  new ApiError(ErrorCode.AUTHENTICATION_KEY_NOT_FOUND, "This API key does not exist, or it was deleted.");

export const keyExpired = () => new ApiError(ErrorCode.AUTHENTICATION_KEY_EXPIRED, "This API key has expired.");

export const workspaceDisabled = () =>
  new ApiError(ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED, "The workspace tied to this API key is disabled.");

export const keyDisabled = () => new ApiError(ErrorCode.AUTHORIZATION_KEY_DISABLED, "This API key is disabled.");

export const missingScope = (scope: string) =>
  new ApiError(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    `This API key lacks the scope \`${scope}\`: use a key that holds it. What a key may do here is told by its scopes, not by its permissions.`,
  );

export const keyRequired = (scope: string) =>
  new ApiError(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    `This operation needs an API key with the scope \`${scope}\`, not the operator's credential.`,
  );

export const operatorOnly = () =>
  new ApiError(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    "This operation is for the operator of the service: it needs the operator's credential, not an API key.",
  );

export const scopeExceedsCaller = (scope: string) =>
  new ApiError(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    `A key can give only scopes that it holds, and this API key does not hold \`${scope}\`: leave it out, or use a key that holds it.`,
  );

export const keyExceedsCaller = () =>
  new ApiError(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    "A key can change, reroll or delete only keys whose scopes it holds itself, and that key has others: use a key that holds them.",
  );

export const selfRaised = () =>
  new ApiError(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    "A key can neither enable itself, nor postpone or lift its own expiry, nor give itself scopes: use another key that holds its scopes.",
  );

export const heirOutlives = (end: Date) =>
  new ApiError(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    `This API key expires at ${end.toISOString()}, so it cannot leave a key with scopes that ends later: let that key end by then, give it no scopes, or use a key that ends later.`,
  );

export const rateLimited = (requests: number, seconds: number, retryAfterMs: number) =>
  new ApiError(
    ErrorCode.LIMITS_RATE_LIMITED,
    `This workspace has made the ${requests} requests that it may make in ${seconds} seconds; try again later.`,
    { retryAfterMs: Math.ceil(retryAfterMs) },
  );

const quotaDetails: Readonly<Record<"keys" | "identities" | "bytes", (most: number) => string>> = {
  keys: (most) =>
    `This workspace has reached its quota of ${most} keys. Delete keys that are not needed any more, or ask the operator for a larger quota.`,
  identities: (most) =>
    `This workspace has reached its quota of ${most} identities. Delete identities that are not needed any more, or ask the operator for a larger quota.`,
  bytes: (most) =>
    `This workspace has reached its quota of ${most} stored bytes, its audit events included. Delete what is not needed any more, wait until old audit events are removed, or ask the operator for a larger quota.`,
};

export const quotaExceeded = (quota: keyof typeof quotaDetails, most: number) =>
  new ApiError(ErrorCode.LIMITS_QUOTA_EXCEEDED, quotaDetails[quota](most));

export const identityNotFound = () =>
  new ApiError(
    ErrorCode.DATA_IDENTITY_NOT_FOUND,
    "The requested identity could not be found in this workspace. Check the identifier and its letter case.",
  );

export const keyNotFound = () =>
  new ApiError(ErrorCode.DATA_KEY_NOT_FOUND, "The requested key could not be found in this workspace.");

export const workspaceNotFound = () =>
  new ApiError(ErrorCode.DATA_WORKSPACE_NOT_FOUND, "The requested workspace could not be found.");

export const identityAlreadyExists = () =>
  new ApiError(
    ErrorCode.DATA_IDENTITY_ALREADY_EXISTS,
    "An identity with this externalId already exists in this workspace.",
  );

export const idempotencyConflict = () =>
  new ApiError(
    ErrorCode.DATA_IDEMPOTENCY_CONFLICT,
    "This Idempotency-Key was used for another request. Repeat that request unchanged, or choose another key.",
  );

/** An answer names this many mistakes: it must fit into the trailers of a gRPC call, however many a request has. */
const mostNamed = 10;

/** Whether more mistakes are known than an answer names. To look for others would cost time, and nobody would learn. */
export const isEnough = (errors: readonly FieldError[]) => errors.length > mostNamed;

export const invalidInput = (all: readonly FieldError[]) => {
  const fields = all.slice(0, mostNamed).map(({ location, message }) => ({ location: clipped(location), message }));
  const sentences = fields.map(({ location, message }) => `${location} ${message}`);
  if (isEnough(all)) sentences.push("and there is more than these ten");
  return new ApiError(ErrorCode.APPLICATION_INVALID_INPUT, `The request is not valid: ${sentences.join("; ")}.`, {
    fields,
  });
};

/** A name that is empty, as JSON allows, is shown by its quotes. Half a character, which not every protocol can carry, is replaced. */
function clipped(text: string): string {
  if (text === "") return '""';
  return text.length <= 100 ? text.toWellFormed() : `${text.slice(0, 100).toWellFormed()}…`;
}

export const routeNotFound = () =>
  new ApiError(
    ErrorCode.APPLICATION_ROUTE_NOT_FOUND,
    "There is nothing at this path. Check its spelling, its version (/v1 or /v2) and its letter case.",
  );

export const methodNotAllowed = (method: string, path: string, allow: readonly string[]) =>
  new ApiError(
    ErrorCode.APPLICATION_METHOD_NOT_ALLOWED,
    `${path} does not take ${method}; it takes ${allow.join(", ")}.`,
    { allow },
  );

export const unsupportedMediaType = (why: string) => new ApiError(ErrorCode.APPLICATION_UNSUPPORTED_MEDIA_TYPE, why);

export const unsupportedCompression = (header: string) =>
  new ApiError(
    ErrorCode.APPLICATION_UNSUPPORTED_MEDIA_TYPE,
    `Compressed requests are not read: turn compression off, and send no \`${header}\` but identity.`,
    { acceptEncoding: "identity" },
  );

export const payloadTooLarge = (part: "body" | "head", limit: number) =>
  new ApiError(ErrorCode.APPLICATION_PAYLOAD_TOO_LARGE, `The request's ${part} is larger than ${limit} bytes.`);

export const headerCountExceeded = (limit: number) =>
  new ApiError(ErrorCode.APPLICATION_PAYLOAD_TOO_LARGE, `The request has more than ${limit} headers.`);

export const deadlineExceeded = () =>
  new ApiError(ErrorCode.APPLICATION_DEADLINE_EXCEEDED, "The call took longer than its deadline.");

/** The client went away. It is told nothing, so the catalogue has no code for this; the log says `cancelled`. */
export const cancelled = () =>
  new ApiError(ErrorCode.APPLICATION_DEADLINE_EXCEEDED, "The client did not wait for the answer.", { cancelled: true });

export const serviceUnavailable = (cause: unknown, why = "The service cannot reach its database") =>
  new ApiError(ErrorCode.APPLICATION_SERVICE_UNAVAILABLE, `${why}; try again shortly.`, { cause });

export const serviceOverloaded = () =>
  new ApiError(
    ErrorCode.APPLICATION_SERVICE_UNAVAILABLE,
    "The service is asked more than it can answer just now, so it did nothing of this; try again shortly.",
  );

export const responseMemoryExhausted = () =>
  new ApiError(
    ErrorCode.APPLICATION_SERVICE_UNAVAILABLE,
    "Too many responses wait to be read, so there is no memory for this one; read them, or try again shortly.",
  );

export const serviceShuttingDown = () =>
  new ApiError(
    ErrorCode.APPLICATION_SERVICE_UNAVAILABLE,
    "The service is about to stop; another replica is to be asked.",
  );

export const unexpectedError = (cause: unknown) =>
  new ApiError(
    ErrorCode.APPLICATION_UNEXPECTED_ERROR,
    "Something went wrong on our side; the cause is in the service's log under this request id.",
    { cause },
  );

/** Why the service cannot start or go on, or a command cannot run, in a sentence for the one who runs it. */
export class UserError extends Error {
  override readonly name = "UserError";
}
