import { durationMs } from "@bufbuild/protobuf/wkt";
import { type Code, ConnectError } from "@connectrpc/connect";
import {
  BadRequestSchema,
  type ErrorInfo,
  ErrorInfoSchema,
  RetryInfoSchema,
} from "../../gen/google/rpc/error_details_pb.js";
import type { ErrorCode } from "../../gen/latchkey/v1/errors_pb.js";

/** An error code with its category, such as `authorization/workspace_disabled`. Derived from the enum of the proto. */
export type LatchkeyErrorType = TypeOf<Exclude<keyof typeof ErrorCode, "UNSPECIFIED">>;
type TypeOf<Name> = Name extends `${infer Category}_${infer Code}` ? Lowercase<`${Category}/${Code}`> : never;

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

/** A call that the service refused, or that failed in the service. The message is the error's `detail`. */
export class LatchkeyError<Name extends LatchkeyErrorCode = LatchkeyErrorCode> extends Error {
  override readonly name = "LatchkeyError";
  /** The error code. A newer service may return one that this version does not list. */
  readonly code: Name;
  /** The code with its category. */
  readonly type: LatchkeyErrorType;
  /** The gRPC status, for every protocol. */
  readonly status: Code;
  /** The id of the request in the service's log. */
  readonly requestId: string;
  /** The invalid fields; empty unless the code is `invalid_input`. */
  readonly fieldErrors: readonly FieldError[];
  /** The retry delay in milliseconds, if the service returned one. */
  readonly retryAfterMs: number | undefined;

  constructor(cause: ConnectError, { reason, metadata }: ErrorInfo) {
    super(cause.rawMessage, { cause });
    this.code = reason.toLowerCase() as Name;
    this.type = metadata["type"] as LatchkeyErrorType;
    this.status = cause.code;
    this.requestId = metadata["requestId"] ?? "";
    this.fieldErrors = cause
      .findDetails(BadRequestSchema)
      .flatMap(({ fieldViolations }) => fieldViolations)
      .map(({ field, description }) => ({ location: field, message: description }));
    const [{ retryDelay } = {}] = cause.findDetails(RetryInfoSchema);
    this.retryAfterMs = retryDelay && durationMs(retryDelay);
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

/** Reads the details of a ConnectError; undefined if the error does not come from the service. */
export function toLatchkeyError(error: unknown): LatchkeyError | undefined {
  if (!(error instanceof ConnectError)) return undefined;
  const info = error.findDetails(ErrorInfoSchema).find(({ domain }) => domain === "latchkey");
  return info && new LatchkeyError(error, info);
}
