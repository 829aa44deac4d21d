import { Code, ConnectError } from "@connectrpc/connect";
import { CommanderError } from "commander";
import { LatchkeyError } from "../client/protobuf.js";
import { UserError } from "../errors.js";
import { Unreachable } from "./connection-errors.js";
import { printable } from "./output.js";

/** Thrown by `key verify` for a key that is not valid, and by `limit use` beyond the limit. It sets the exit code, so that scripts can branch on it. */
export class NotValid extends Error {
  override readonly name = "NotValid";
}

/** Thrown by `key import` if a hash exists already. The result is already printed. */
export class Conflict extends Error {
  override readonly name = "Conflict";
}

/** The exit codes that scripts can distinguish. */
const exitCodes = {
  success: 0,
  failure: 1,
  usage: 2,
  refused: 3,
  notFound: 4,
  conflict: 5,
  invalidInput: 6,
  unavailable: 7,
  notValid: 8,
} as const;

const byStatus: Partial<Record<Code, number>> = {
  [Code.Unauthenticated]: exitCodes.refused,
  [Code.PermissionDenied]: exitCodes.refused,
  [Code.NotFound]: exitCodes.notFound,
  [Code.AlreadyExists]: exitCodes.conflict,
  [Code.FailedPrecondition]: exitCodes.conflict,
  [Code.InvalidArgument]: exitCodes.invalidInput,
  [Code.ResourceExhausted]: exitCodes.invalidInput,
  [Code.Unavailable]: exitCodes.unavailable,
  [Code.DeadlineExceeded]: exitCodes.unavailable,
};

/** Exceptions to the status: gRPC has one status for requests that are too large, and for those that are too many. */
const byType: Partial<Record<LatchkeyError["type"], number>> = {
  "limits/rate_limited": exitCodes.unavailable,
  "limits/quota_exceeded": exitCodes.refused,
};

export function exitCodeOf(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? exitCodes.success : exitCodes.usage;
  if (error instanceof NotValid) return exitCodes.notValid;
  if (error instanceof Conflict) return exitCodes.conflict;
  if (error instanceof Unreachable) return exitCodes.unavailable;
  if (error instanceof LatchkeyError) return byType[error.type] ?? byStatus[error.status as Code] ?? exitCodes.failure;
  if (error instanceof ConnectError) return byStatus[error.code] ?? exitCodes.failure;
  return exitCodes.failure;
}

/** Prints a sentence for an error that the user can fix. Any other error is a bug and is printed with its stack. */
export function reportError(error: unknown): void {
  // Commander prints its own errors, and the other results are already printed.
  if (error instanceof CommanderError || error instanceof NotValid || error instanceof Conflict) return;
  process.stderr.write(`${sentenceOf(error)}\n`);
}

function sentenceOf(error: unknown): string {
  if (error instanceof UserError) return `\n${error.message}\n`;
  if (error instanceof Unreachable) return `error: ${error.message}`;
  if (error instanceof LatchkeyError) return printable(`error: ${error.message} (${error.type}, ${error.requestId})`);
  if (error instanceof ConnectError) return printable(`error: ${error.rawMessage}`);
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
