import { serviceUnavailable } from "../errors.js";
import type { PoolSettings } from "../storage/postgres/connection.js";
import type { Database } from "../storage/postgres/database.js";
import { classifyError } from "../storage/postgres/errors.js";
import { TimeoutError, withTimeout } from "../storage/timeout.js";
import { type Changed, createChangeStore } from "./change-store.js";
import type { Snapshot } from "./snapshot.js";

/** The source of changes for the lease. */
export interface ChangeSource {
  /** Opens the connection, so that a poll can be sent at once. */
  connect(): Promise<void>;
  changedSince(seen: Snapshot): Promise<Changed>;
  /** Informs all processes that transaction ids are used anew. */
  startTimeline(): Promise<void>;
  /** The same after a crash of PostgreSQL, which each process finds by itself. */
  startTimelineAfterCrash(): Promise<void>;
}

const minRenewalIntervalMs = 1_000;

/** The default timeout of a poll. */
const defaultTimeoutMs = 300;

/** The margins between the timeouts of the server, of a poll and of a connection. */
const marginMs = 50;

/** By how much the timeout of a connection attempt may grow. It doubles after each attempt without an answer. */
const maxConnectFactor = 4;

/**
 * One connection. The server's statement timeout is a little shorter than ours, because otherwise polls that wait for a
 * lock would pile up on the server. The server plans each poll anew, because the best plan for a small table would read
 * all of a large one.
 *
 * @param timeoutMs the timeout of a poll
 */
export function pollerSettings(timeoutMs = defaultTimeoutMs): PoolSettings {
  return {
    connections: 1,
    statementMs: timeoutMs - marginMs,
    parameters: { plan_cache_mode: "force_custom_plan" },
  };
}

/**
 * Polls on a connection of its own, each time with a timeout. If no answer comes, PostgreSQL is unavailable or the
 * network drops packets; then no statement should go on waiting on the other connections either. They are also renewed
 * when another server has taken over, because they may still lead to the old one. All are renewed if its own connection
 * leads to a standby, because the address may lead to the primary by now, or has an unsafe setting, because a corrected one
 * holds for new sessions.
 *
 * @param timeline the timeline that was read on the other connections
 * @param timeoutMs the timeout of a poll. With the default, a call that waits for two attempts is answered within a second
 */
export function createChangePoller(
  own: Database,
  others: readonly Pick<Database, "renew">[],
  timeline: string,
  timeoutMs = defaultTimeoutMs,
): ChangeSource {
  const store = createChangeStore(own);
  const firstConnectTimeout = timeoutMs + marginMs;
  let connected = false;
  let connecting: Promise<void> | undefined;
  let connectTimeout = firstConnectTimeout;
  let knownTimeline = timeline;
  let renewedAt = Number.NEGATIVE_INFINITY;

  /** At a minimum interval: if PostgreSQL is only overloaded, many new connections would make that worse. */
  function renewAtInterval(databases: readonly Pick<Database, "renew">[]): void {
    const now = performance.now();
    if (now < renewedAt + minRenewalIntervalMs) return;
    renewedAt = now;
    for (const database of databases) database.renew();
  }

  async function ask<T>(withinMs: number, query: () => Promise<T>): Promise<T> {
    try {
      const answer = await withTimeout(withinMs, query());
      connected = true;
      connectTimeout = firstConnectTimeout;
      return answer;
    } catch (error) {
      if (error instanceof TimeoutError) {
        own.renew();
        renewAtInterval(others);
        if (!connected) connectTimeout = Math.min(connectTimeout * 2, firstConnectTimeout * maxConnectFactor);
      }
      connected = false;
      throw serviceUnavailable(error, classifyError(error)?.detail);
    }
  }

  return {
    async connect() {
      if (connected) return;
      connecting ??= ask(connectTimeout, store.ping).finally(() => {
        connecting = undefined;
      });
      await withTimeout(firstConnectTimeout, connecting);
    },
    startTimeline: () => ask(timeoutMs, store.startTimeline),
    startTimelineAfterCrash: () => ask(timeoutMs, store.startTimelineAfterCrash),
    async changedSince(seen) {
      const changed = await ask(timeoutMs, () => store.changedSince(seen));
      if (changed.standby || changed.unsafeSetting !== null) {
        connected = false;
        renewAtInterval([own, ...others]);
      } else if (knownTimeline !== changed.timeline) {
        for (const other of others) other.renew();
      }
      knownTimeline = changed.timeline;
      return changed;
    },
  };
}
