import { serviceUnavailable } from "../errors.js";
import type { Database } from "../storage/postgres/database.js";
import { classifyError } from "../storage/postgres/errors.js";
import { TimeoutError, withTimeout } from "../storage/timeout.js";
import { type Changed, createChangesStore } from "./change-store.js";
import type { Snapshot } from "./snapshot.js";

/** Where the lease learns of changes. */
export interface ChangeSource {
  /** Sees to it that a question can be sent at once. */
  connect(): Promise<void>;
  changedSince(seen: Snapshot): Promise<Changed>;
  /** Makes known to all that transaction ids are counted anew. */
  startTimeline(): Promise<void>;
}

/** How long anyone waits for a connection. Twice this, and a caller has still been answered within a second. */
const patienceMs = 350;

/** How long a connection may take to come about, at first and at most: after each silence, twice as long. */
const connectLimitMs = { first: 350, last: 1_400 };

const leastBetweenRenewalsMs = 1_000;

/** How long an answer may take. */
const answerLimitMs = 300;

/**
 * One connection. The server gives up a little before we do, or questions that wait for a lock would pile up there. And
 * it plans anew each time: what was the best plan for a small table would read all of a large one.
 */
export const pollerSettings = {
  connections: 1,
  statementMs: answerLimitMs - 50,
  more: { plan_cache_mode: "force_custom_plan" },
};

/**
 * Asks on a connection of its own, each time with a limit. Silence means that Postgres is away, or that the network
 * swallows what is sent; then nobody should go on waiting on other connections either. Nor when another server has
 * taken over, for they may still lead to the old one.
 *
 * @param history the one that the other connections were found to lead to
 */
export function createChangePoller(own: Database, others: Pick<Database, "renew">, history: string): ChangeSource {
  const store = createChangesStore(own);
  let connected = false;
  let connecting: Promise<void> | undefined;
  let connectLimit = connectLimitMs.first;
  let knownHistory = history;
  let othersRenewedAt = Number.NEGATIVE_INFINITY;

  /** Not again and again: if Postgres is merely overwhelmed, new connections are the last thing it needs. */
  function renewOthers(): void {
    const now = performance.now();
    if (now < othersRenewedAt + leastBetweenRenewalsMs) return;
    othersRenewedAt = now;
    others.renew();
  }

  async function ask<T>(limit: number, question: () => Promise<T>): Promise<T> {
    try {
      const answer = await withTimeout(limit, question());
      connected = true;
      connectLimit = connectLimitMs.first;
      return answer;
    } catch (error) {
      if (error instanceof TimeoutError) {
        own.renew();
        renewOthers();
        if (!connected) connectLimit = Math.min(connectLimit * 2, connectLimitMs.last);
      }
      connected = false;
      throw serviceUnavailable(error, classifyError(error)?.sentence);
    }
  }

  return {
    async connect() {
      if (connected) return;
      connecting ??= ask(connectLimit, store.greet).finally(() => {
        connecting = undefined;
      });
      await withTimeout(patienceMs, connecting);
    },
    startTimeline: () => ask(answerLimitMs, store.beginHistory),
    async changedSince(seen) {
      const changed = await ask(answerLimitMs, () => store.changedSince(seen));
      if (knownHistory !== changed.history) others.renew();
      knownHistory = changed.history;
      return changed;
    },
  };
}
