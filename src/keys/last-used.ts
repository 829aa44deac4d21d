import { setTimeout as sleep } from "node:timers/promises";
import { createEpisode } from "../observe/episode.js";
import type { Log } from "../observe/log.js";

/**
 * Remembers when keys were last used, and stores it in batches: no call waits for it. By this machine's time of day, which is
 * good enough: nothing is decided by it.
 */
export interface LastUsed {
  /** @param at in milliseconds since 1970 */
  record(keyId: string, at: number): void;
  /** Stores what is still unstored. */
  close(): Promise<void>;
}

/** How much a crash can lose. */
const flushEveryMs = 2_000;

/** How long a stop waits for a database that does not answer. */
const patienceMs = 5_000;

/** Until a batch is stored, no other change of its keys is made: so it is small, and a change waits for a moment only. */
const largestBatch = 500;

/** How many keys are remembered at most, which takes 20 MB: more come only if Postgres is away, or too slow, for long. */
const mostUnstored = 100_000;

/** @param store resolves to the ids of keys whose last use could not be stored yet */
export function createLastUsed(
  store: (uses: ReadonlyMap<string, number>) => Promise<readonly string[]>,
  log: Log,
): LastUsed {
  let uses = new Map<string, number>();
  let full = false;
  const outage = createEpisode(log, {
    level: "warn",
    begun: "when keys were last used cannot be stored; it is tried again and again",
    over: "when keys were last used is stored again",
  });

  function record(keyId: string, at: number): void {
    const known = uses.get(keyId);
    if (known === undefined && uses.size >= mostUnstored) leaveOut();
    else if (known === undefined || known < at) uses.set(keyId, at);
  }

  /** Said once, until everything that was remembered is stored. */
  function leaveOut(): void {
    if (!full)
      log.warn({ keys: mostUnstored }, "too many keys wait for their last use to be stored; more are left out");
    full = true;
  }

  /** Stores what is there now; what comes meanwhile waits for the next time, or one busy key would be stored without end. */
  async function flush(): Promise<void> {
    const pending = [...uses];
    uses = new Map();
    try {
      while (pending.length > 0) {
        const batch = new Map(pending.slice(0, largestBatch));
        const left = await store(batch);
        pending.splice(0, largestBatch);
        for (const keyId of left) record(keyId, batch.get(keyId) as number);
      }
      full = uses.size >= mostUnstored;
      outage.end();
    } catch (error) {
      for (const [keyId, at] of pending) record(keyId, at);
      outage.begin({ err: error });
    }
  }

  let flushing = Promise.resolve();
  const timer = setInterval(() => {
    flushing = flushing.then(flush);
  }, flushEveryMs);
  timer.unref();

  return {
    record,
    async close() {
      clearInterval(timer);
      const stored = flushing.then(flush).then(() => uses.size === 0);
      const inTime = await Promise.race([stored, sleep(patienceMs, false, { ref: false })]);
      if (!inTime) log.warn({ keys: uses.size }, "the database does not answer; when keys were last used is lost");
    },
  };
}
