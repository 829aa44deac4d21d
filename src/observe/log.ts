import { pino } from "pino";

export const logLevels = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;
export type LogLevel = (typeof logLevels)[number];

/** Structured lines for machines, on stderr; stdout is for people. Credentials are never handed to it. */
export function createLog(level: LogLevel) {
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime }, pino.destination({ fd: 2, sync: true }));
}

export type Log = ReturnType<typeof createLog>;
