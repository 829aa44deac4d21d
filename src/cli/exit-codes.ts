import { Code, ConnectError } from "@connectrpc/connect";
import { CommanderError } from "commander";
import { LatchkeyError } from "../client/client.js";
import { UserError } from "../errors.js";
import { printable } from "./output.js";

/** Raised by `key verify` for a key that is not valid: an answer, but one that scripts want to branch on. */
export class NotValid extends Error {
  override readonly name = "NotValid";
}

/** What scripts can tell apart. */
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
  [Code.InvalidArgument]: exitCodes.invalidInput,
  [Code.ResourceExhausted]: exitCodes.invalidInput,
  [Code.Unavailable]: exitCodes.unavailable,
  [Code.DeadlineExceeded]: exitCodes.unavailable,
};

/** Where the status alone would mislead: gRPC has one for what is too large and for what is too often. */
const byType: Partial<Record<LatchkeyError["type"], number>> = {
  "limits/rate_limited": exitCodes.unavailable,
  "limits/quota_exceeded": exitCodes.refused,
};

export function exitCodeOf(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? exitCodes.success : exitCodes.usage;
  if (error instanceof NotValid) return exitCodes.notValid;
  if (error instanceof LatchkeyError) return byType[error.type] ?? byStatus[error.status] ?? exitCodes.failure;
  if (error instanceof ConnectError) return byStatus[error.code] ?? exitCodes.failure;
  return exitCodes.failure;
}

/** Tells what the user can mend in a sentence; anything else is a fault of ours, told in full. */
export function reportError(error: unknown): void {
  // Commander has told its own, and a key that is not valid was told as an answer.
  if (error instanceof CommanderError || error instanceof NotValid) return;
  process.stderr.write(`${sentenceOf(error)}\n`);
}

function sentenceOf(error: unknown): string {
  if (error instanceof UserError) return `\n${error.message}\n`;
  if (error instanceof LatchkeyError) return printable(`error: ${error.message} (${error.type}, ${error.requestId})`);
  if (error instanceof ConnectError) return printable(`error: ${error.rawMessage}`);
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
