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
  /** Whether much of the memory for pending facts is in use, so that the next flush must not be delayed. */
  isFilling(): boolean;
}

export interface PeriodicFlush {
  /** Stores the facts that are not stored yet. */
  close(): Promise<void>;
}

/** The minimum time between two flushes. A crash loses the facts of this time, or of a longer one if there are many. */
const minPauseMs = 2_000;

/**
 * The pause lasts at least this long for each pending fact. With 10,000 keys in use, flushes every two seconds took a sixth
 * of the CPU time of verifications. A longer pause saves most of it, because a key that is used all the time is still one
 * fact.
 */
const pauseMsPerFact = 1;

/** How often the end of the pause is checked. */
const checkIntervalMs = 500;

/** How long shutdown waits for a database that does not answer. */
const closeTimeoutMs = 5_000;

/**
 * Flushes a collection every two seconds, or less often if many facts are pending: about 1,000 facts a second. One flush at a
 * time. An outage of the database is logged once.
 */
export function startPeriodicFlush({ what, flush, pending, isFilling }: Collection, log: Log): PeriodicFlush {
  const outage = createOutageLog(log, "warn");
  let pausedAt = performance.now();
  let flushing: Promise<void> | undefined;

  async function run(): Promise<void> {
    try {
      await flush();
      outage.recovered(`${what} are stored again`);
    } catch (error) {
      outage.failed(`cannot store ${what}; retrying`, { err: error });
    }
    pausedAt = performance.now();
  }

  async function storeAll(): Promise<boolean> {
    await flushing;
    await run();
    return pending() === 0;
  }

  const timer = setInterval(() => {
    const pausedMs = performance.now() - pausedAt;
    const isDue = pausedMs >= minPauseMs && (pausedMs >= pending() * pauseMsPerFact || isFilling());
    if (isDue) flushing ??= run().finally(() => (flushing = undefined));
  }, checkIntervalMs);
  timer.unref();

  return {
    async close() {
      clearInterval(timer);
      const inTime = await Promise.race([storeAll(), sleep(closeTimeoutMs, false, { ref: false })]);
      if (!inTime) log.warn({ pending: pending() }, `the database does not answer; ${what} are lost`);
    },
  };
}
