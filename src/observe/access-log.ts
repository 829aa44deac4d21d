import type { Span } from "@opentelemetry/api";
import { pino } from "pino";
import type { ApiError } from "../errors.js";
import { pathOf } from "../errors.js";
import type { CallMetrics, CountCall } from "./call-metrics.js";
import type { Log } from "./log.js";

/** What is known of a call when it has been answered. */
export interface CallRecord {
  readonly requestId: string;
  readonly protocol: Protocol;
  /** The RPC, or the HTTP method and path where no RPC was reached; never the query. */
  readonly method: string;
  readonly workspaceId: string | undefined;
  /** By the clock that only runs on, `performance.now()`. */
  readonly startedAt: number;
  readonly failure: ApiError | undefined;
  /** The HTTP status with which Connect itself refused a call, before it reached us. */
  readonly refusedWith?: number | undefined;
  readonly span?: Span | undefined;
}

export type Protocol = "grpc" | "connect" | "http";

/** Takes a call down: in a line of the log, and in what is counted. */
export type AccessLog = (call: CallRecord) => void;

/** Only what was not foreseen brings its cause along. */
export function createAccessLog(log: Log, tally: CallMetrics): AccessLog {
  // What is the same for every call of an RPC is found once.
  const prepared: Record<Protocol, Map<string, Prepared>> = { grpc: new Map(), connect: new Map(), http: new Map() };

  function preparedFor(protocol: Protocol, method: string): Prepared {
    const known = prepared[protocol].get(method);
    if (known !== undefined) return known;
    const made = { write: createCallLines(log.child({ protocol, method })), count: tally.counterOf(protocol, method) };
    prepared[protocol].set(method, made);
    return made;
  }

  return (call) => {
    const { requestId, protocol, method, workspaceId, startedAt, failure } = call;
    const { write, count } = preparedFor(protocol, method);
    const code = callCodeOf(call);
    const durationMs = performance.now() - startedAt;
    count(code, durationMs);
    // To the microsecond: what lies below is noise.
    write({ requestId, workspaceId, code, durationMs: Math.round(durationMs * 1_000) / 1_000 }, failure?.more.cause);
  };
}

/** How a call ended, in a word: `ok`, a code of the catalogue, or why there was no answer of ours. */
export function callCodeOf({ failure, refusedWith }: Pick<CallRecord, "failure" | "refusedWith">): string {
  if (failure?.more.cancelled) return "cancelled";
  if (failure !== undefined) return pathOf(failure.code);
  return refusedWith === undefined ? "ok" : `connect/${refusedWith}`;
}

interface Prepared {
  readonly write: CallLines;
  readonly count: CountCall;
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
