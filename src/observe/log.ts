import { writeSync } from "node:fs";
import { pino } from "pino";

export const logLevels = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;
export type LogLevel = (typeof logLevels)[number];

/** Structured lines for machines, on stderr; stdout is for people. Credentials are never handed to it. */
export function createLog(level: LogLevel) {
  stderr ??= createBatches();
  return pino({ level, base: null, timestamp: createTimestamp() }, stderr);
}

/** A process has one, however many logs. */
let stderr: ReturnType<typeof createBatches> | undefined;

export type Log = ReturnType<typeof createLog>;

/** The time of a line, in ISO form; made once for all lines of a millisecond. */
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

/** What a pipe takes in one piece, in characters: so the lines of several workers do not get into each other. */
const batchLength = 4096;

/** How long a line may wait for others to be written with. */
const batchMs = 100;

/**
 * Writes several lines at a time, because each writing costs as much as half a call. By hand, because pino's own
 * destination measures all that is waiting again with every line. Nothing is lost but by kill -9.
 */
function createBatches() {
  let lines: string[] = [];
  let length = 0;

  function flush(): void {
    if (length === 0) return;
    const batch = Buffer.from(lines.join(""));
    lines = [];
    length = 0;
    writeAll(batch);
  }

  setInterval(flush, batchMs).unref();
  process.once("exit", flush);
  return {
    write(line: string) {
      if (length + line.length > batchLength) flush();
      lines.push(line);
      length += line.length;
    },
  };
}

/** A pipe whose reader is slow takes only a part, or nothing for now: then we wait, as a process that logs does. */
function writeAll(batch: Buffer): void {
  for (let written = 0; written < batch.length; ) {
    try {
      written += writeSync(2, batch, written);
    } catch (error) {
      const code = error instanceof Error && "code" in error ? error.code : undefined;
      if (code !== "EAGAIN") return; // nobody reads the log any more: the service goes on without
      Atomics.wait(pause, 0, 0, 5);
    }
  }
}

const pause = new Int32Array(new SharedArrayBuffer(4));
