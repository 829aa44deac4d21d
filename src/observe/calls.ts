import type { Failure } from "../errors.js";
import { pathOf } from "../errors.js";
import type { Log } from "./log.js";

/** What is known of a call when it has been answered. */
export interface CallRecord {
  readonly requestId: string;
  readonly door: "grpc" | "connect" | "http";
  /** The RPC, or the HTTP method and path where no RPC was reached; never the query. */
  readonly method: string;
  readonly workspaceId: string | undefined;
  readonly startedAt: number;
  readonly failure: Failure | undefined;
  /** The HTTP status with which Connect itself refused a call, before it reached us. */
  readonly refusedWith?: number | undefined;
}

/** Writes one line per call. Only what was not foreseen brings its cause along. */
export function logCall(log: Log, { failure, startedAt, refusedWith, ...call }: CallRecord): void {
  const refusal = failure ? pathOf(failure.code) : refusedWith && `connect/${refusedWith}`;
  const line = { ...call, code: refusal ?? "ok", durationMs: Date.now() - startedAt };
  const cause = failure?.more.cause;
  if (cause === undefined) log.info(line, "call");
  else log.error({ ...line, err: cause }, "call");
}
