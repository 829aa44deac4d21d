import type { Span } from "@opentelemetry/api";
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
  readonly span?: Span | undefined;
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

  return (call) => {
    const { requestId, door, method, workspaceId, startedAt, failure } = call;
    const line = { requestId, workspaceId, code: codeOf(call), durationMs: Date.now() - startedAt };
    linesOf(door, method)(line, failure?.more.cause);
  };
}

/** How a call ended, in a word: `ok`, a code of the catalogue, or why there was no answer of ours. */
export function codeOf({ failure, refusedWith }: Pick<CallRecord, "failure" | "refusedWith">): string {
  if (failure?.more.cancelled) return "cancelled";
  if (failure !== undefined) return pathOf(failure.code);
  return refusedWith === undefined ? "ok" : `connect/${refusedWith}`;
}

type CallLines = (line: CallLine, cause: unknown) => void;

interface CallLine {
  readonly requestId: string;
  readonly workspaceId: string | undefined;
  readonly code: string;
  readonly durationMs: number;
}

/**
 * Writes the lines of calls in pino's own form. Pino is ready for anything, which takes it a tenth of a whole call; here
 * every value is known to need no escape.
 */
function createCallLines(log: Log): CallLines {
  const {
    [pino.symbols.streamSym]: stream,
    [pino.symbols.timeSym]: time,
    [pino.symbols.chindingsSym]: same,
  } = inside(log);
  return (line, cause) => {
    if (cause !== undefined) return log.error({ ...line, err: cause }, "call");
    if (!log.isLevelEnabled("info")) return;
    const { requestId, workspaceId, code, durationMs } = line;
    const where = workspaceId === undefined ? "" : `,"workspaceId":"${workspaceId}"`;
    const what = `"requestId":"${requestId}"${where},"code":"${code}","durationMs":${durationMs},"msg":"call"`;
    stream.write(`{"level":${pino.levels.values["info"]}${time()}${same},${what}}\n`);
  };
}

/** What pino keeps under the symbols that it publishes for extensions: where lines go, and how they begin. */
function inside(log: Log) {
  return log as unknown as {
    readonly [pino.symbols.streamSym]: { write(line: string): void };
    readonly [pino.symbols.timeSym]: () => string;
    readonly [pino.symbols.chindingsSym]: string;
  };
}
