import type { Log } from "../observe/log.js";
import { createOutageLog } from "../observe/outage-log.js";
import { startPeriodicFlush } from "../storage/periodic-flush.js";

/**
 * Collects the last-used times of keys and stores them in batches, so that no call waits for the write. The times are
 * those of this machine's clock, which is good enough, because no decision depends on them.
 */
export interface LastUsed {
  /** @param at in milliseconds since 1970 */
  record(keyId: string, at: number): void;
  /** Stores the times that are not stored yet. */
  close(): Promise<void>;
}

/** A batch locks its keys until it is stored. It is small, so that other changes of these keys wait only briefly. */
const maxBatchSize = 500;

/** Takes 20 MB. Only a long outage or slowness of PostgreSQL leads to so many. */
const maxPending = 100_000;

/** @param store resolves to the ids of keys whose last-used time could not be stored yet */
export function createLastUsed(
  store: (uses: ReadonlyMap<string, number>) => Promise<readonly string[]>,
  log: Log,
): LastUsed {
  let uses = new Map<string, number>();
  const overflow = createOutageLog(log, "warn");

  function record(keyId: string, at: number): void {
    const known = uses.get(keyId);
    if (known === undefined && uses.size >= maxPending) {
      const message = "too many last-used times are not stored yet; dropping those of further keys";
      overflow.failed(message, { keys: maxPending });
    } else if (known === undefined || known < at) {
      uses.set(keyId, at);
    }
  }

  /** Stores the times that are pending now. Later ones wait for the next flush, or a busy key would make it endless. */
  async function flush(): Promise<void> {
    const pending = [...uses];
    uses = new Map();
    try {
      while (pending.length > 0) {
        const batch = new Map(pending.slice(0, maxBatchSize));
        const skipped = await store(batch);
        pending.splice(0, maxBatchSize);
        for (const keyId of skipped) record(keyId, batch.get(keyId) as number);
      }
    } catch (error) {
      for (const [keyId, at] of pending) record(keyId, at);
      throw error;
    }
    if (uses.size < maxPending) overflow.recovered();
  }

  const what = "last-used times of keys";
  const pending = () => uses.size;
  const isFilling = () => uses.size > maxPending / 4;
  const { close } = startPeriodicFlush({ what, flush, pending, isFilling }, log);
  return { record, close };
}
