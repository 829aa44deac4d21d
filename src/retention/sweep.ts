import { setTimeout as sleep } from "node:timers/promises";
import { ApiError } from "../errors.js";
import { createEpisode } from "../observe/episode.js";
import type { Log } from "../observe/log.js";
import { batchSize, type RetentionStore } from "./store.js";

export interface SweepOptions {
  /** For how many days audit events are kept. */
  readonly auditDays: number | "forever";
  readonly everyMs: number;
  readonly log: Log;
}

const dayMs = 24 * 60 * 60 * 1_000;

/**
 * How long the row of a deleted key or identity stays. Its removal is safe at any age (see record_removed_rows() in SQL),
 * but makes caches forget what they have not used since the deletion: after a day, nobody notices.
 */
const tombstoneMs = dayMs;

/** How much longer a sweep rests after each statement than that took: so it never has more than a fifth of a connection. */
const restRatio = 4;

/** Removes, again and again, what is older than it is kept, until it is stopped. */
export function startSweep(store: RetentionStore, { auditDays, everyMs, log }: SweepOptions) {
  const stopped = new AbortController();
  const outage = createEpisode(log, {
    level: "warn",
    begun: "old rows cannot be removed; the service tries again every minute",
    over: "old rows are removed again",
  });

  /** Removes all that is older than this, batch by batch. */
  async function removeAll(remove: (keptMs: number) => Promise<number>, keptMs = 0): Promise<number> {
    for (let removed = 0; ; ) {
      const begun = performance.now();
      const batch = await remove(keptMs);
      removed += batch;
      if (batch < batchSize || stopped.signal.aborted) return removed;
      await sleep((performance.now() - begun) * restRatio, undefined, { signal: stopped.signal });
    }
  }

  async function sweep(): Promise<void> {
    try {
      const removed = {
        auditEvents: auditDays === "forever" ? 0 : await removeAll(store.auditEvents, auditDays * dayMs),
        keys: await removeAll(store.keys, tombstoneMs),
        identities: await removeAll(store.identities, tombstoneMs),
        idempotencyRecords: await removeAll(store.idempotencyRecords),
      };
      if (Object.values(removed).some(Boolean)) log.info({ removed }, "removed rows that are older than they are kept");
      outage.end();
    } catch (error) {
      // A database that is asked too much is not to be asked for this, too.
      if (!(error instanceof ApiError) && !stopped.signal.aborted) outage.begin({ err: error });
    }
  }

  async function sweepForever(): Promise<void> {
    // Replicas that start together do not sweep together.
    let restMs = everyMs * Math.random();
    while (!stopped.signal.aborted) {
      await sleep(restMs, undefined, { ref: false, signal: stopped.signal }).catch(() => {});
      if (!stopped.signal.aborted) await sweep();
      restMs = everyMs;
    }
  }

  void sweepForever();
  // A statement under way is not waited for: it ends with its connection, and is whole or not there.
  return { stop: () => stopped.abort() };
}
