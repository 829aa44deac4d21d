import { setTimeout as sleep } from "node:timers/promises";
import { ApiError } from "../errors.js";
import type { Log } from "../observe/log.js";
import { createOutageLog } from "../observe/outage-log.js";
import type { Erasure } from "./erasure.js";
import type { Batch, RetentionStore } from "./store.js";

/** A retention period in days. */
type Days = number | "forever";

export interface SweepOptions {
  /** The retention period of audit events. */
  readonly auditDays: Days;
  /**
   * That of the rows of deleted keys, identities, roles and APIs. Their removal is safe at any age (see
   * record_removed_rows() in SQL). But it makes caches drop the entries that they have not used since the deletion. After a
   * day, this has no noticeable effect.
   */
  readonly deletedDays: Days;
  /** That of the counts of verifications. */
  readonly usageDays: Days;
  readonly everyMs: number;
  readonly log: Log;
}

const dayMs = 24 * 60 * 60 * 1_000;

/**
 * How long the number of a process's last batch of counts stays. Only a process whose database has not answered for this
 * long, while others could use it, may count a batch twice.
 */
const counterDays = 1;

/** The pause after each statement, relative to its duration: a sweep uses at most a fifth of a connection. */
const pauseRatio = 4;

/**
 * How many statements one sweep runs for each kind of rows. Without this bound, a kind whose rows expire as fast as they are
 * removed would keep all later kinds from being removed.
 */
const maxStatements = 20;

/** Periodically erases what is in deleted workspaces, and removes rows that are past their retention period. */
export function startSweep(store: RetentionStore, erasure: Erasure, options: SweepOptions) {
  const { auditDays, deletedDays, usageDays, everyMs, log } = options;
  const stopped = new AbortController();
  const outage = createOutageLog(log, "warn");

  /** Whether the present sweep has left rows to the next one. */
  let hasMore = false;

  /** Removes rows older than the retention period, in batches. */
  async function removeSome(remove: (retentionMs: number) => Promise<Batch>, days: Days = 0): Promise<number> {
    if (days === "forever") return 0;
    let removed = 0;
    for (let statement = 1; statement <= maxStatements; statement++) {
      const begun = performance.now();
      const { rows, mayHaveMore } = await remove(days * dayMs);
      removed += rows;
      if (!mayHaveMore || stopped.signal.aborted) return removed;
      await sleep((performance.now() - begun) * pauseRatio, undefined, { signal: stopped.signal });
    }
    hasMore = true;
    return removed;
  }

  /** Removes or erases the rows of all kinds. A locked row delays only the rows of its own kind. */
  async function sweepAll(): Promise<void> {
    const failures: unknown[] = [];
    const removeKind = (remove: (retentionMs: number) => Promise<Batch>, days?: Days) =>
      removeSome(remove, days).catch((error: unknown) => {
        if (error instanceof ApiError || stopped.signal.aborted) throw error;
        failures.push(error);
        return 0;
      });
    const erased = await removeKind(erasure.eraseWorkspaces);
    if (erased > 0) log.info({ erased }, "erased the texts of rows in deleted workspaces");
    const removed = {
      auditEvents: await removeKind(store.auditEvents, auditDays),
      keysOfApis: await removeKind(store.keysOfApis),
      keys: await removeKind(store.keys, deletedDays),
      identities: await removeKind(store.identities, deletedDays),
      verificationCounts: await removeKind(store.verificationCounts, usageDays),
      verificationCounters: await removeKind(store.verificationCounters, counterDays),
      roles: await removeKind(store.roles, deletedDays),
      apis: await removeKind(store.apis, deletedDays),
      idempotencyRecords: await removeKind(store.idempotencyRecords),
    };
    if (Object.values(removed).some(Boolean)) log.info({ removed }, "removed rows past their retention period");
    if (failures.length > 0) throw failures[0];
  }

  async function sweep(): Promise<void> {
    hasMore = false;
    try {
      await sweepAll();
      outage.recovered("expired rows are removed again");
    } catch (error) {
      hasMore = false; // a failing sweep is not repeated at once
      // An ApiError means that the database is overloaded. A later sweep removes the rows.
      if (error instanceof ApiError || stopped.signal.aborted) return;
      outage.failed("cannot remove expired rows; retrying every minute", { err: error });
    }
  }

  async function sweepForever(): Promise<void> {
    // A random first delay, so that replicas that start together do not sweep at the same time. Not at once, because a
    // process that has just started is busy.
    let delayMs = (everyMs * (1 + Math.random())) / 2;
    while (!stopped.signal.aborted) {
      await sleep(delayMs, undefined, { ref: false, signal: stopped.signal }).catch(() => {});
      if (!stopped.signal.aborted) await sweep();
      delayMs = hasMore ? 0 : everyMs;
    }
  }

  void sweepForever();
  // Does not wait for a statement in flight: it ends with its connection, and is atomic.
  return { stop: () => stopped.abort() };
}
