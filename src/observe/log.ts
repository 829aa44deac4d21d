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

/** How much waits for a reader that is slow, in bytes. What comes beyond it is left out, and counted. */
const mostWaiting = 2 ** 20;

/** How long the end of the process waits for such a reader. */
const patienceMs = 1_000;

/**
 * Writes several lines at a time, because each writing costs as much as half a call. By hand, because pino's own
 * destination measures all that is waiting again with every line, and waits for a reader for as long as it takes: who
 * stops reading the log would stop the service. Nothing is lost but by that, which is told, and by kill -9.
 */
function createBatches() {
  let lines: string[] = [];
  let length = 0;
  const waiting: Buffer[] = [];
  let waitingBytes = 0;
  let leftOut = 0;
  const pipe = pipeOf(process.stderr);

  function add(text: string): void {
    const batch = Buffer.from(text);
    waiting.push(batch);
    waitingBytes += batch.length;
  }

  /** Returns whether everything is out. */
  function flush(): boolean {
    if (length === 0 && waiting.length === 0) return true;
    if (length > 0) add(lines.join(""));
    lines = [];
    length = 0;
    pipe?.setBlocking(false); // each time: a worker or a host of backends that ends makes it again what it found
    for (let first = waiting[0]; first !== undefined; first = waiting[0]) {
      const taken = writeSome(first);
      waitingBytes -= taken;
      if (taken === first.length) waiting.shift();
      else waiting[0] = first.subarray(taken);
      if (taken === 0) return false;
      if (waiting.length === 0 && leftOut > 0) {
        add(tellLeftOut(leftOut));
        leftOut = 0;
      }
    }
    return true;
  }

  setInterval(flush, batchMs).unref();
  process.once("exit", () => {
    for (const until = performance.now() + patienceMs; !flush() && performance.now() < until; ) {
      Atomics.wait(pause, 0, 0, 5);
    }
  });
  return {
    write(line: string) {
      if (length + line.length > batchLength) flush();
      if (waitingBytes > mostWaiting) {
        leftOut += 1;
        return;
      }
      lines.push(line);
      length += line.length;
    },
  };
}

/** A pipe that is full can say so, or hold up whoever writes. */
interface Pipe {
  setBlocking(blocking: boolean): void;
}

/** The pipe that a stream writes to, if it is one; by an inner part of Node, which has no other way to set this. */
function pipeOf(stream: NodeJS.WriteStream): Pipe | undefined {
  return stream.isTTY ? undefined : (stream as { readonly _handle?: Pipe })._handle;
}

/** Returns how many bytes were taken; none: the reader has to read first. Once nobody reads any more, all are. */
function writeSome(batch: Buffer): number {
  try {
    return writeSync(2, batch);
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    return code === "EAGAIN" ? 0 : batch.length;
  }
}

function tellLeftOut(lines: number): string {
  const msg = "the log was not read for a while, and lines were left out";
  return `${JSON.stringify({ level: pino.levels.values["warn"], time: new Date().toISOString(), lines, msg })}\n`;
}

const pause = new Int32Array(new SharedArrayBuffer(4));
