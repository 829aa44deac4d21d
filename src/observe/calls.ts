import type { Failure } from "../errors.js";
import { pathOf } from "../errors.js";
import type { Log } from "./log.js";

/** What is known of a call when it has been answered. */
export interface CallRecord {
  readonly requestId: string;
  readonly door: Door;
  /** The RPC, or the HTTP method and path where no RPC was reached; never the query. */
  readonly method: string;
  readonly workspaceId: string | undefined;
  readonly startedAt: number;
  readonly failure: Failure | undefined;
  /** The HTTP status with which Connect itself refused a call, before it reached us. */
  readonly refusedWith?: number | undefined;
}

export type Door = "grpc" | "connect" | "http";

/** Writes one line per call. */
export type LogCall = (call: CallRecord) => void;

/** Only what was not foreseen brings its cause along. */
export function createLogCall(log: Log): LogCall {
  // What is the same in every line of an RPC is written once: a line costs half as much then.
  const prepared: Record<Door, Map<string, Log>> = { grpc: new Map(), connect: new Map(), http: new Map() };

  function logOf(door: Door, method: string): Log {
    const known = prepared[door].get(method);
    if (known !== undefined) return known;
    const made = log.child({ door, method });
    prepared[door].set(method, made);
    return made;
  }

  return ({ requestId, door, method, workspaceId, startedAt, failure, refusedWith }) => {
    const refusal = failure ? pathOf(failure.code) : refusedWith && `connect/${refusedWith}`;
    const line = { requestId, workspaceId, code: refusal ?? "ok", durationMs: Date.now() - startedAt };
    const cause = failure?.more.cause;
    if (cause === undefined) logOf(door, method).info(line, "call");
    else logOf(door, method).error({ ...line, err: cause }, "call");
  };
}
