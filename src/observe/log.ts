import { type Logger, pino } from "pino";
import { createStderrDestination, type LineDestination } from "./stderr-destination.js";

export const logLevels = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;
export type LogLevel = (typeof logLevels)[number];

/** Structured JSON lines. Callers never pass credentials to the log. */
export type Log = Logger;

/** The log of a service, which also accepts lines that are serialized already. */
export type ServiceLog = Log & {
  /**
   * Returns a function that writes a line. It takes the members of the line, as JSON without braces.
   *
   * @param bindings members that all these lines share
   */
  lineWriter(level: "info" | "debug", bindings: Readonly<Record<string, string>>): (members: string) => void;
};

export interface LogOptions {
  /** Members of every line. */
  readonly bindings?: Readonly<Record<string, number>>;
  /** Default: stderr, because stdout is for people. */
  readonly destination?: LineDestination;
}

export function createLog(level: LogLevel, { bindings, destination = sharedStderr() }: LogOptions = {}): ServiceLog {
  const timestamp = createTimestamp();
  const log = pino({ level, base: bindings ?? null, timestamp }, destination);
  return Object.assign(log, {
    lineWriter(lineLevel: "info" | "debug", lineBindings: Readonly<Record<string, string>>) {
      const prefix = JSON.stringify({ ...bindings, ...lineBindings }).slice(1, -1);
      const number = pino.levels.values[lineLevel];
      return (members: string) => {
        if (log.isLevelEnabled(lineLevel))
          destination.write(`{"level":${number}${timestamp()},${prefix},${members}}\n`);
      };
    },
  });
}

let stderr: LineDestination | undefined;

/** All logs of the process share one. */
function sharedStderr(): LineDestination {
  stderr ??= createStderrDestination();
  return stderr;
}

/** The time of a line in ISO format. All lines of the same millisecond share one string. */
function createTimestamp(): () => string {
  let ms = Number.NaN;
  let text = "";
  return () => {
    const now = Date.now();
    if (now !== ms) {
      ms = now;
      text = `,"time":"${new Date(now).toISOString()}"`;
    }
    return text;
  };
}
