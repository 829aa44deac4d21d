import { setTimeout as sleep } from "node:timers/promises";
import type { Log } from "../observe/log.js";

/** Remembers when keys were last used, and stores it in batches: no call waits for it. */
export interface LastUsed {
  record(keyId: string, at: Date): void;
  /** Stores what is still unstored. */
  close(): Promise<void>;
}

/** How much a crash can lose. */
const flushEveryMs = 2_000;

/** How long a stop waits for a database that does not answer. */
const patienceMs = 5_000;

/** A batch is bounded, so that one statement stays small; the rest waits for the next. */
const largestBatch = 10_000;

export function createLastUsed(store: (uses: ReadonlyMap<string, Date>) => Promise<void>, log: Log): LastUsed {
  let uses = new Map<string, Date>();

  async function flush(): Promise<void> {
    while (uses.size > 0) {
      const batch = new Map([...uses].slice(0, largestBatch));
      const rest = [...uses].slice(largestBatch);
      uses = new Map(rest);
      try {
        await store(batch);
      } catch (error) {
        // Kept for the next time; a later use of the same key has the last word.
        uses = new Map([...batch, ...uses]);
        log.warn({ err: error }, "when keys were last used could not be stored; it will be tried again");
        return;
      }
    }
  }

  let flushing = Promise.resolve();
  const timer = setInterval(() => {
    flushing = flushing.then(flush);
  }, flushEveryMs);
  timer.unref();

  return {
    record: (keyId, at) => void uses.set(keyId, at),
    async close() {
      clearInterval(timer);
      const stored = flushing.then(flush).then(() => uses.size === 0);
      const inTime = await Promise.race([stored, sleep(patienceMs, false, { ref: false })]);
      if (!inTime) log.warn({ keys: uses.size }, "the database does not answer; when keys were last used is lost");
    },
  };
}
