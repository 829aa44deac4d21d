import { pino } from "pino";
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
  // What is the same in every line of an RPC is written once.
  const prepared: Record<Door, Map<string, CallLines>> = { grpc: new Map(), connect: new Map(), http: new Map() };

  function linesOf(door: Door, method: string): CallLines {
    const known = prepared[door].get(method);
    if (known !== undefined) return known;
    const made = createCallLines(log.child({ door, method }));
    prepared[door].set(method, made);
    return made;
  }

  return ({ requestId, door, method, workspaceId, startedAt, failure, refusedWith }) => {
    const refusal = failure ? pathOf(failure.code) : refusedWith && `connect/${refusedWith}`;
    const line = { requestId, workspaceId, code: refusal || "ok", durationMs: Date.now() - startedAt };
    linesOf(door, method)(line, failure?.more.cause);
  };
}

type CallLines = (line: CallLine, cause: unknown) => void;

interface CallLine {
  readonly requestId: string;
  readonly workspaceId: string | undefined;
  readonly code: string;
  readonly durationMs: number;
}

/**
 * Writes the lines of calls as pino would, which takes a tenth of a call to do it: it must be ready for anything, while
 * here every value is known to need no escape.
 */
function createCallLines(log: Log): CallLines {
  const { streamSym, timeSym, chindingsSym } = pino.symbols;
  const { [streamSym]: stream, [timeSym]: time, [chindingsSym]: same } = log as any;
  return (line, cause) => {
    if (cause !== undefined) log.error({ ...line, err: cause }, "call");
    else if (log.isLevelEnabled("info")) {
      const { requestId, workspaceId, code, durationMs } = line;
      const where = workspaceId === undefined ? "" : `,"workspaceId":"${workspaceId}"`;
      stream.write(
        `{"level":30${time()}${same},"requestId":"${requestId}"${where},"code":"${code}","durationMs":${durationMs},"msg":"call"}\n`,
      );
    }
  };
}
