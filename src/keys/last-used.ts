import type { Log } from "../observe/log.js";
import { createOutageLog } from "../observe/outage-log.js";
import type { KeyState } from "../revocation/key-state.js";
import { startPeriodicFlush } from "../storage/periodic-flush.js";

/**
 * Collects the last-used times of keys and stores them in batches, so that no call waits for the write. The times are
 * those of this machine's clock, which is good enough, because no decision depends on them.
 */
export interface LastUsed {
  /**
   * @param key the cached state of the key
   * @param at in milliseconds since 1970
   */
  record(key: UsedKey, at: number): void;
  /** Stores the times that are not stored yet. */
  close(): Promise<void>;
}

type UsedKey = Pick<KeyState["key"], "keyId">;

/** The last use of a cached key. */
interface Use {
  readonly keyId: string;
  at: number;
  isPending: boolean;
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
  // By the cached state of a key, and not by its id: that reads less memory. Here and in VerificationCounter, it saved 3 % of
  // the CPU time of verifications. After a change, a key has another state and another use, and both may be pending.
  const useByState = new WeakMap<UsedKey, Use>();
  let pendingUses: Use[] = [];
  const overflow = createOutageLog(log, "warn");

  function record(key: UsedKey, at: number): void {
    let use = useByState.get(key);
    if (use === undefined) {
      use = { keyId: key.keyId, at, isPending: false };
      useByState.set(key, use);
    }
    use.at = Math.max(use.at, at);
    addPending(use);
  }

  function addPending(use: Use): void {
    if (use.isPending) return;
    if (pendingUses.length >= maxPending) {
      const message = "too many last-used times are not stored yet; dropping those of further keys";
      overflow.failed(message, { keys: maxPending });
      return;
    }
    use.isPending = true;
    pendingUses.push(use);
  }

  /** Stores the times that are pending now. Later ones wait for the next flush, or a busy key would make it endless. */
  async function flush(): Promise<void> {
    const uses = pendingUses;
    pendingUses = [];
    for (const use of uses) use.isPending = false;
    try {
      while (uses.length > 0) {
        const batch = uses.slice(0, maxBatchSize);
        const skipped = new Set(await store(lastTimes(batch)));
        uses.splice(0, maxBatchSize);
        for (const use of batch) if (skipped.has(use.keyId)) addPending(use);
      }
    } catch (error) {
      for (const use of uses) addPending(use);
      throw error;
    }
    if (pendingUses.length < maxPending) overflow.recovered();
  }

  const what = "last-used times of keys";
  const pending = () => pendingUses.length;
  const isFilling = () => pendingUses.length > maxPending / 4;
  const { close } = startPeriodicFlush({ what, flush, pending, isFilling }, log);
  return { record, close };
}

/** The last time of each key. */
function lastTimes(uses: readonly Use[]): Map<string, number> {
  const times = new Map<string, number>();
  for (const { keyId, at } of uses) times.set(keyId, Math.max(at, times.get(keyId) ?? at));
  return times;
}
