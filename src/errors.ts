import { STATUS_CODES } from "node:http";
import { Code } from "@connectrpc/connect";
import { ErrorCode } from "../gen/latchkey/v1/errors_pb.js";

/** A code of the catalogue: every ErrorCode that is ever sent. */
export type ApiErrorCode = Exclude<ErrorCode, ErrorCode.UNSPECIFIED>;

/** The category of a code: the first word of its name, such as `data`. */
export type Category = FirstWord<Exclude<keyof typeof ErrorCode, "UNSPECIFIED">>;

type FirstWord<Name> = Name extends `${infer First}_${string}` ? Lowercase<First> : never;

/** What each protocol returns for one error code. src/http/pages/error-docs.ts explains the codes to people. */
export interface CatalogueEntry {
  /** The HTTP status. */
  readonly status: number;
  /** The gRPC status, also used by Connect and gRPC-Web; undefined if the error occurs only over plain HTTP. */
  readonly grpc: Code | undefined;
  /** The default retry delay, if the error itself sets none. */
  readonly retryAfterMs?: number;
}

/**
 * Every error that a call can return. Only this table maps codes to HTTP and gRPC statuses. A code of the proto enum
 * without an entry here does not compile.
 */
export const catalogue: Record<ApiErrorCode, CatalogueEntry> = {
  [ErrorCode.AUTHENTICATION_MISSING]: { status: 401, grpc: Code.Unauthenticated },
  [ErrorCode.AUTHENTICATION_MALFORMED]: { status: 401, grpc: Code.Unauthenticated },
  [ErrorCode.AUTHENTICATION_KEY_NOT_FOUND]: { status: 401, grpc: Code.Unauthenticated },
  [ErrorCode.AUTHENTICATION_KEY_EXPIRED]: { status: 401, grpc: Code.Unauthenticated },
  [ErrorCode.AUTHORIZATION_WORKSPACE_DISABLED]: { status: 403, grpc: Code.PermissionDenied },
  [ErrorCode.AUTHORIZATION_KEY_DISABLED]: { status: 403, grpc: Code.PermissionDenied },
  [ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS]: { status: 403, grpc: Code.PermissionDenied },
  [ErrorCode.LIMITS_RATE_LIMITED]: { status: 429, grpc: Code.ResourceExhausted },
  [ErrorCode.LIMITS_QUOTA_EXCEEDED]: {
    // Not 429: clients retry on 429, and a retry cannot succeed.
    status: 403,
    grpc: Code.ResourceExhausted,
  },
  [ErrorCode.DATA_IDENTITY_NOT_FOUND]: { status: 404, grpc: Code.NotFound },
  [ErrorCode.DATA_KEY_NOT_FOUND]: { status: 404, grpc: Code.NotFound },
  [ErrorCode.DATA_WORKSPACE_NOT_FOUND]: { status: 404, grpc: Code.NotFound },
  [ErrorCode.DATA_WORKSPACE_ENABLED]: { status: 409, grpc: Code.FailedPrecondition },
  [ErrorCode.DATA_IDENTITY_ALREADY_EXISTS]: { status: 409, grpc: Code.AlreadyExists },
  [ErrorCode.DATA_API_NOT_FOUND]: { status: 404, grpc: Code.NotFound },
  [ErrorCode.DATA_ROLE_NOT_FOUND]: { status: 404, grpc: Code.NotFound },
  [ErrorCode.DATA_ROLE_ALREADY_EXISTS]: { status: 409, grpc: Code.AlreadyExists },
  [ErrorCode.DATA_PERMISSION_NOT_FOUND]: { status: 404, grpc: Code.NotFound },
  [ErrorCode.DATA_PERMISSION_ALREADY_EXISTS]: { status: 409, grpc: Code.AlreadyExists },
  [ErrorCode.DATA_PERMISSION_IN_USE]: {
    status: 409,
    grpc: Code.FailedPrecondition,
  },
  [ErrorCode.DATA_OVERRIDE_NOT_FOUND]: { status: 404, grpc: Code.NotFound },
  [ErrorCode.DATA_IDEMPOTENCY_CONFLICT]: {
    status: 409,
    // Not ABORTED: clients retry on ABORTED, and a retry cannot succeed.
    grpc: Code.AlreadyExists,
  },
  [ErrorCode.APPLICATION_INVALID_INPUT]: { status: 400, grpc: Code.InvalidArgument },
  [ErrorCode.APPLICATION_ROUTE_NOT_FOUND]: { status: 404, grpc: Code.Unimplemented },
  [ErrorCode.APPLICATION_METHOD_NOT_ALLOWED]: { status: 405, grpc: undefined },
  [ErrorCode.APPLICATION_UNSUPPORTED_MEDIA_TYPE]: {
    status: 415,
    // The gRPC protocol requires this status for a compression that is not supported.
    grpc: Code.Unimplemented,
  },
  [ErrorCode.APPLICATION_PAYLOAD_TOO_LARGE]: { status: 413, grpc: Code.ResourceExhausted },
  [ErrorCode.APPLICATION_DEADLINE_EXCEEDED]: { status: 504, grpc: Code.DeadlineExceeded },
  [ErrorCode.APPLICATION_SERVICE_UNAVAILABLE]: { status: 503, grpc: Code.Unavailable, retryAfterMs: 1_000 },
  [ErrorCode.APPLICATION_UNEXPECTED_ERROR]: { status: 500, grpc: Code.Internal },
};

/** All codes of the catalogue, in the order of the proto. */
export const errorCodes = Object.keys(catalogue).map((code) => Number(code) as ApiErrorCode);

/** `<category>/<code>`, the end of the error's type URL. Both parts come from the name in the enum. */
export function pathOf(code: ApiErrorCode): string {
  return ErrorCode[code].toLowerCase().replace("_", "/");
}

/** The category of a code: the first part of its path. */
export function categoryOf(code: ApiErrorCode): Category {
  return pathOf(code).replace(/\/.*/, "") as Category;
}

/** The code without its category, in UPPER_SNAKE case: the reason of a google.rpc.ErrorInfo. */
export function reasonOf(code: ApiErrorCode): string {
  return ErrorCode[code].slice(ErrorCode[code].indexOf("_") + 1);
}

/** The gRPC status of an error. */
export function grpcStatusOf(code: ApiErrorCode): Code {
  return catalogue[code].grpc ?? Code.Unknown;
}

/** The gRPC status as gRPC spells it, such as NOT_FOUND; undefined if the error occurs only over plain HTTP. */
export function grpcNameOf(code: ApiErrorCode): string | undefined {
  const { grpc } = catalogue[code];
  return grpc && Code[grpc].replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase();
}

/** The standard reason phrase of the code's HTTP status. */
export function titleOf(code: ApiErrorCode): string {
  return STATUS_CODES[catalogue[code].status] ?? "";
}

/** The retry delay that every protocol returns; undefined if none is returned. */
export function retryAfterMsOf({ code, options }: ApiError): number | undefined {
  return options.retryAfterMs ?? catalogue[code].retryAfterMs;
}

/** The retry delay in whole seconds, for HTTP. Rounded up, because a client that retries too early is refused again. */
export function retryAfterOf(error: ApiError): string | undefined {
  const ms = retryAfterMsOf(error);
  return ms === undefined ? undefined : `${Math.max(1, Math.ceil(ms / 1_000))}`;
}

/** An error in one field of the input. */
export interface FieldError {
  /** The field's path as the caller wrote it, such as `permissions[0]`; `body` for the whole body. */
  readonly location: string;
  /** Describes the error and how to fix it. */
  readonly message: string;
}

/** What an error has besides its code and detail. */
export interface ApiErrorOptions {
  /** The invalid fields of the request. */
  readonly fields?: readonly FieldError[];
  /** Whether there are more than these. */
  readonly hasMoreFields?: boolean;
  /** The HTTP methods that the path supports. */
  readonly allow?: readonly string[];
  /** The encodings that the service accepts. */
  readonly acceptEncoding?: string;
  readonly retryAfterMs?: number;
  /** Logged, never returned. */
  readonly cause?: unknown;
  /** The client has cancelled the call or disconnected. */
  readonly cancelled?: boolean;
}

/**
 * An error that is returned to the caller. Any code may throw one; each protocol translates it in one place. It has no
 * stack trace, because capturing one takes a tenth of the time of a refused call. Only the stack of an unexpected cause
 * is logged.
 */
export class ApiError extends Error {
  override readonly name = "ApiError";

  constructor(
    readonly code: ApiErrorCode,
    readonly detail: string,
    readonly options: ApiErrorOptions = {},
  ) {
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(detail, { cause: options.cause });
    Error.stackTraceLimit = stackTraceLimit;
  }
}

export const missingCredential = () =>
  new ApiError(
    ErrorCode.AUTHENTICATION_MISSING,
    "The request has no credential. Send the header `Authorization: Bearer <API_KEY>`.",
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
    `This API key lacks the scope \`${scope}\`. Use a key that has it. Scopes allow operations of this service; permissions do not.`,
  );

export const keyRequired = (scope: string) =>
  new ApiError(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    `This operation needs an API key with the scope \`${scope}\`. The operator credential does not allow it.`,
  );

export const operatorOnly = () =>
  new ApiError(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    "This operation needs the operator credential. An API key does not allow it.",
  );

export const scopeExceedsCaller = (scope: string) =>
  new ApiError(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    `A key can grant only scopes that it has, and this API key does not have \`${scope}\`. Leave the scope out, or use a key that has it.`,
  );

export const keyExceedsCaller = () =>
  new ApiError(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    "A key can change, reroll or delete only keys whose scopes it has itself, and that key has other scopes. Use a key that has them.",
  );

export const selfEscalation = () =>
  new ApiError(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    "A key cannot enable itself, extend or remove its own expiry, or grant itself scopes. Use another key that has its scopes.",
  );

export const expiryExceedsCaller = (expiry: Date) =>
  new ApiError(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    `This API key expires at ${expiry.toISOString()}, so it cannot leave a key with scopes that expires later. Set an expiry no later than this one, give that key no scopes, or use a key that expires later.`,
  );

export const rateLimited = (requests: number, seconds: number, retryAfterMs: number) =>
  new ApiError(
    ErrorCode.LIMITS_RATE_LIMITED,
    `This workspace has reached its rate limit of ${requests} requests in ${seconds} seconds. Retry after the delay in \`Retry-After\`.`,
    { retryAfterMs: Math.ceil(retryAfterMs) },
  );

const quotaDetails: Readonly<Record<"keys" | "identities" | "bytes", (max: number) => string>> = {
  keys: (max) =>
    `This workspace has reached its quota of ${max} keys. Delete keys that are no longer needed, or ask the operator for a larger quota.`,
  identities: (max) =>
    `This workspace has reached its quota of ${max} identities. Delete identities that are no longer needed, or ask the operator for a larger quota.`,
  bytes: (max) =>
    `This workspace has reached its quota of ${max} stored bytes, including its audit events. Delete data that is no longer needed, wait until old audit events are removed, or ask the operator for a larger quota.`,
};

export const quotaExceeded = (quota: keyof typeof quotaDetails, max: number) =>
  new ApiError(ErrorCode.LIMITS_QUOTA_EXCEEDED, quotaDetails[quota](max));

const overrideDetails: Readonly<Record<"overrides" | "patterns", (max: number) => string>> = {
  overrides: (max) =>
    `This namespace has reached the maximum of ${max} overrides. Delete overrides that are no longer needed, or replace several of them by one with \`*\`.`,
  patterns: (max) =>
    `This namespace has reached the maximum of ${max} overrides with \`*\`. Delete some that are no longer needed, or set overrides without \`*\`.`,
};

export const tooManyOverrides = (which: keyof typeof overrideDetails, max: number) =>
  new ApiError(ErrorCode.LIMITS_QUOTA_EXCEEDED, overrideDetails[which](max));

export const identityNotFound = () =>
  new ApiError(
    ErrorCode.DATA_IDENTITY_NOT_FOUND,
    "The requested identity could not be found in this workspace. Check the identifier and its letter case.",
  );

export const keyNotFound = () =>
  new ApiError(ErrorCode.DATA_KEY_NOT_FOUND, "The requested key could not be found in this workspace.");

export const workspaceNotFound = () =>
  new ApiError(ErrorCode.DATA_WORKSPACE_NOT_FOUND, "The requested workspace could not be found.");

export const workspaceEnabled = () =>
  new ApiError(
    ErrorCode.DATA_WORKSPACE_ENABLED,
    "This workspace is enabled, and only a disabled workspace can be deleted. Disable it first, with disableWorkspace.",
  );

export const apiNotFound = () =>
  new ApiError(ErrorCode.DATA_API_NOT_FOUND, "The API of `apiId` could not be found in this workspace.");

export const apiExceedsCaller = () =>
  new ApiError(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    "A key can delete only an API whose keys have no other scopes than its own, and this API has keys with other scopes, or more than 100 keys with scopes. Use a key that has these scopes; for more than 100 such keys, one with `*`.",
  );

export const apiOfCaller = () =>
  new ApiError(
    ErrorCode.AUTHORIZATION_INSUFFICIENT_PERMISSIONS,
    "A key cannot delete the API that it belongs to. Use a key of another API, or of none.",
  );

export const roleNotFound = (role: string) =>
  new ApiError(ErrorCode.DATA_ROLE_NOT_FOUND, `The role \`${truncate(role)}\` could not be found in this workspace.`);

export const roleAlreadyExists = () =>
  new ApiError(ErrorCode.DATA_ROLE_ALREADY_EXISTS, "A role with this name already exists in this workspace.");

export const permissionNotFound = () =>
  new ApiError(
    ErrorCode.DATA_PERMISSION_NOT_FOUND,
    "The requested permission could not be found in the catalogue of this workspace.",
  );

export const permissionAlreadyExists = () =>
  new ApiError(
    ErrorCode.DATA_PERMISSION_ALREADY_EXISTS,
    "The catalogue of this workspace already contains a permission with this slug.",
  );

export const permissionInUse = () =>
  new ApiError(
    ErrorCode.DATA_PERMISSION_IN_USE,
    "A key or a role still has this permission. Remove it there first, with removePermissions and setRolePermissions.",
  );

export const overrideNotFound = () =>
  new ApiError(ErrorCode.DATA_OVERRIDE_NOT_FOUND, "The namespace has no override for this identifier.");

export const identityAlreadyExists = () =>
  new ApiError(
    ErrorCode.DATA_IDENTITY_ALREADY_EXISTS,
    "An identity with this externalId already exists in this workspace.",
  );

export const idempotencyConflict = () =>
  new ApiError(
    ErrorCode.DATA_IDEMPOTENCY_CONFLICT,
    "This Idempotency-Key was used for another request. Retry that request unchanged, or choose another Idempotency-Key.",
  );

/** The maximum number of field errors in a response. All of them must fit into the trailers of a gRPC call. */
const maxFieldErrors = 10;

/** Whether there are more field errors than a response lists. Validation stops then: nobody would see further ones. */
export const isEnough = (errors: readonly FieldError[]) => errors.length > maxFieldErrors;

export const invalidInput = (all: readonly FieldError[], hasMoreFields = isEnough(all)) => {
  const fields = all
    .slice(0, maxFieldErrors)
    .map(({ location, message }) => ({ location: truncate(location), message }));
  const sentences = fields.map(({ location, message }) => `${location} ${message}`);
  if (hasMoreFields) sentences.push("and more than these ten");
  return new ApiError(ErrorCode.APPLICATION_INVALID_INPUT, `The request is not valid: ${sentences.join("; ")}.`, {
    fields,
    hasMoreFields,
  });
};

/** The same error, if it is about fields, with other locations for them. */
export function withLocations(error: ApiError, relocate: (location: string) => string): ApiError {
  const { fields, hasMoreFields } = error.options;
  return fields === undefined
    ? error
    : invalidInput(
        fields.map(({ location, message }) => ({ location: relocate(location), message })),
        hasMoreFields,
      );
}

/**
 * An empty name, which JSON allows, is shown as two quotes. A lone surrogate is replaced, because not every protocol
 * can encode it.
 */
function truncate(text: string): string {
  if (text === "") return '""';
  return text.length <= 100 ? text.toWellFormed() : `${text.slice(0, 100).toWellFormed()}…`;
}

export const routeNotFound = () =>
  new ApiError(
    ErrorCode.APPLICATION_ROUTE_NOT_FOUND,
    "This path does not exist. Check its spelling, its version (/v1 or /v2) and its letter case.",
  );

export const methodNotAllowed = (method: string, path: string, allow: readonly string[]) =>
  new ApiError(
    ErrorCode.APPLICATION_METHOD_NOT_ALLOWED,
    `${path} does not support ${method}. It supports ${allow.join(", ")}.`,
    { allow },
  );

export const unsupportedMediaType = (why: string) => new ApiError(ErrorCode.APPLICATION_UNSUPPORTED_MEDIA_TYPE, why);

export const unsupportedCompression = (header: string) =>
  new ApiError(
    ErrorCode.APPLICATION_UNSUPPORTED_MEDIA_TYPE,
    `Compressed requests are not supported. Turn off compression, and send no \`${header}\` other than identity.`,
    { acceptEncoding: "identity" },
  );

export const payloadTooLarge = (part: "body" | "head", limit: number) =>
  new ApiError(
    ErrorCode.APPLICATION_PAYLOAD_TOO_LARGE,
    `The request ${part === "body" ? "body is" : "headers are"} larger than ${limit} bytes.`,
  );

export const headerCountExceeded = (limit: number) =>
  new ApiError(ErrorCode.APPLICATION_PAYLOAD_TOO_LARGE, `The request has more than ${limit} headers.`);

export const deadlineExceeded = () =>
  new ApiError(ErrorCode.APPLICATION_DEADLINE_EXCEEDED, "The call took longer than its deadline.");

/** The client disconnected and gets no response, so the catalogue has no code for this. The log says `cancelled`. */
export const cancelled = () =>
  new ApiError(ErrorCode.APPLICATION_DEADLINE_EXCEEDED, "The client cancelled the call or disconnected.", {
    cancelled: true,
  });

export const serviceUnavailable = (cause: unknown, why = "The service cannot reach its database") =>
  new ApiError(ErrorCode.APPLICATION_SERVICE_UNAVAILABLE, `${why}. Retry after the delay in \`Retry-After\`.`, {
    cause,
  });

export const serviceOverloaded = () =>
  new ApiError(
    ErrorCode.APPLICATION_SERVICE_UNAVAILABLE,
    "The service is overloaded and did not process this request. Retry after the delay in `Retry-After`.",
  );

export const responseMemoryExhausted = () =>
  new ApiError(
    ErrorCode.APPLICATION_SERVICE_UNAVAILABLE,
    "Too many responses have not been read yet, so there is no memory for this one. Read them, or retry after the delay in `Retry-After`.",
  );

export const serviceShuttingDown = () =>
  new ApiError(
    ErrorCode.APPLICATION_SERVICE_UNAVAILABLE,
    "The service is shutting down. Send the request to another replica.",
  );

export const tooManyVerifiers = (max: number) =>
  new ApiError(
    ErrorCode.APPLICATION_SERVICE_UNAVAILABLE,
    `This replica has ${max} verifier streams of the workspace, which is the maximum. Use another replica, or fewer processes with a verifier.`,
  );

export const tooManyLookups = (max: number) =>
  new ApiError(
    ErrorCode.APPLICATION_SERVICE_UNAVAILABLE,
    `This replica has ${max} lookups of the workspace in flight, which is the maximum, and did not process this request. Send fewer requests at a time, and retry after the delay in \`Retry-After\`.`,
  );

export const unexpectedError = (cause: unknown) =>
  new ApiError(
    ErrorCode.APPLICATION_UNEXPECTED_ERROR,
    "An internal error occurred. The cause is in the service's log under this request id.",
    { cause },
  );

/** An error that the operator can fix: why the service cannot start or continue, or a command cannot run. */
export class UserError extends Error {
  override readonly name = "UserError";
}
