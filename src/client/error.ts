import type { ErrorType } from "../../gen/client.js";

/** An error code with its category, such as `authorization/workspace_disabled`. */
export type LatchkeyErrorType = ErrorType;

/** An error code without its category, such as `workspace_disabled`. `key_not_found` is in two categories. */
export type LatchkeyErrorCode = CodeOf<LatchkeyErrorType>;
type CodeOf<Name> = Name extends `${string}/${infer Code}` ? Code : Name;

/** An error in one field of a request. */
export interface FieldError {
  /** The field's path, such as `permissions[0]`. */
  readonly location: string;
  /** Describes the error and how to fix it. */
  readonly message: string;
}

/** What the service says about an error. */
export interface ErrorDescription {
  readonly message: string;
  readonly type: string;
  readonly status: number;
  readonly requestId: string;
  readonly fieldErrors: readonly FieldError[];
  readonly retryAfterMs: number | undefined;
}

/** A call that the service refused, or that failed in the service. The message is the error's `detail`. */
export class LatchkeyError<Name extends LatchkeyErrorCode = LatchkeyErrorCode> extends Error {
  override readonly name = "LatchkeyError";
  /** The error code. A newer service may return one that this version does not list. */
  readonly code: Name;
  /** The code with its category. */
  readonly type: LatchkeyErrorType;
  /** The status of the response: that of HTTP, such as 403, or with the protobuf client that of gRPC, such as 7. */
  readonly status: number;
  /** The id of the request in the service's log. */
  readonly requestId: string;
  /** The invalid fields; empty unless the code is `invalid_input`. */
  readonly fieldErrors: readonly FieldError[];
  /** The retry delay in milliseconds, if the service returned one. */
  readonly retryAfterMs: number | undefined;

  constructor(
    { message, type, status, requestId, fieldErrors, retryAfterMs }: ErrorDescription,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.code = type.replace(/^.*\//, "") as Name;
    this.type = type as LatchkeyErrorType;
    this.status = status;
    this.requestId = requestId;
    this.fieldErrors = fieldErrors;
    this.retryAfterMs = retryAfterMs;
  }
}

/**
 * Whether an error comes from the service and, if a name is given, has this code: with or without its category, such as
 * `data/key_not_found`.
 */
export function isLatchkeyError<Name extends LatchkeyErrorCode | LatchkeyErrorType = LatchkeyErrorCode>(
  error: unknown,
  name?: Name,
): error is LatchkeyError<CodeOf<Name>> {
  return error instanceof LatchkeyError && (name === undefined || name === error.code || name === error.type);
}

/** A call without a response of the service. Whether the service has performed it is unknown. */
export class NoResponseError extends Error {
  override readonly name = "NoResponseError";
  /**
   * `unreachable`: there was no response. `timeout`: none within the timeout of the call. `invalid_response`: the response
   * was not one of the service, but perhaps of a proxy.
   */
  readonly code: "unreachable" | "timeout" | "invalid_response";

  constructor(code: NoResponseError["code"], message: string, cause?: unknown) {
    super(message, { cause });
    this.code = code;
  }
}
