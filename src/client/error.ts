import { durationMs } from "@bufbuild/protobuf/wkt";
import { type Code, ConnectError } from "@connectrpc/connect";
import {
  BadRequestSchema,
  type ErrorInfo,
  ErrorInfoSchema,
  RetryInfoSchema,
} from "../../gen/google/rpc/error_details_pb.js";
import type { ErrorCode } from "../../gen/latchkey/v1/errors_pb.js";

/** An error of the catalogue with its category, such as `authorization/workspace_disabled`: read off the proto's enum. */
export type LatchkeyErrorType = TypeOf<Exclude<keyof typeof ErrorCode, "UNSPECIFIED">>;
type TypeOf<Name> = Name extends `${infer Category}_${infer Code}` ? Lowercase<`${Category}/${Code}`> : never;

/** The same without its category, such as `workspace_disabled`. `key_not_found` is in two categories. */
export type LatchkeyErrorCode = CodeOf<LatchkeyErrorType>;
type CodeOf<Name> = Name extends `${string}/${infer Code}` ? Code : Name;

/** What is wrong with one field of a request. */
export interface FieldError {
  /** The field's path, such as `permissions[0]`. */
  readonly location: string;
  /** What is wrong and how to mend it. */
  readonly message: string;
}

/** A call that the service refused, or failed to make. The message is the service's own sentence. */
export class LatchkeyError<Name extends LatchkeyErrorCode = LatchkeyErrorCode> extends Error {
  override readonly name = "LatchkeyError";
  /** Which error of the catalogue; a newer service may send one that this version does not list. */
  readonly code: Name;
  /** The code with its category. */
  readonly type: LatchkeyErrorType;
  /** The gRPC status, whatever the protocol. */
  readonly status: Code;
  /** What the service's log calls the request. */
  readonly requestId: string;
  /** The fields to mend; empty unless the code is `invalid_input`. */
  readonly fieldErrors: readonly FieldError[];
  /** After how many milliseconds to try again, where the service says so. */
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

/** Whether the service said so, and said this: a code, or a code with its category, such as `data/key_not_found`. */
export function isLatchkeyError<Name extends LatchkeyErrorCode | LatchkeyErrorType = LatchkeyErrorCode>(
  error: unknown,
  name?: Name,
): error is LatchkeyError<CodeOf<Name>> {
  return error instanceof LatchkeyError && (name === undefined || name === error.code || name === error.type);
}

/** What a ConnectError tells by its details; undefined if it does not come from the service. */
export function toLatchkeyError(error: unknown): LatchkeyError | undefined {
  if (!(error instanceof ConnectError)) return undefined;
  const info = error.findDetails(ErrorInfoSchema).find(({ domain }) => domain === "latchkey");
  return info && new LatchkeyError(error, info);
}
