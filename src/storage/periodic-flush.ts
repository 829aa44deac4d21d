import { setTimeout as sleep } from "node:timers/promises";
import type { Log } from "../observe/log.js";
import { createOutageLog } from "../observe/outage-log.js";

/** Facts that a process collects in memory and stores in batches, so that no call waits for the write. */
export interface Collection {
  /** What they are, for the log: a plural. */
  readonly what: string;
  /** Stores the facts that are pending now. Keeps those that it cannot store, and throws. */
  flush(): Promise<void>;
  /** The number of facts that are not stored yet. */
  pending(): number;
}

export interface PeriodicFlush {
  /** Stores the facts that are not stored yet. */
  close(): Promise<void>;
}

/** A crash loses the facts of at most one interval. */
const flushIntervalMs = 2_000;

/** How long shutdown waits for a database that does not answer. */
const closeTimeoutMs = 5_000;

/** Flushes a collection every two seconds, one flush at a time. An outage of the database is logged once. */
export function startPeriodicFlush({ what, flush, pending }: Collection, log: Log): PeriodicFlush {
  const outage = createOutageLog(log, "warn");

  async function run(): Promise<void> {
    try {
      await flush();
      outage.recovered(`${what} are stored again`);
    } catch (error) {
      outage.failed(`cannot store ${what}; retrying`, { err: error });
    }
  }

  let flushing = Promise.resolve();
  const timer = setInterval(() => {
    flushing = flushing.then(run);
  }, flushIntervalMs);
  timer.unref();

  return {
    async close() {
      clearInterval(timer);
      const stored = flushing.then(run).then(() => pending() === 0);
      const inTime = await Promise.race([stored, sleep(closeTimeoutMs, false, { ref: false })]);
      if (!inTime) log.warn({ pending: pending() }, `the database does not answer; ${what} are lost`);
    },
  };
}
