import { type Call, type Cancellable, runUnlessAborted } from "../call/call.js";
import { cancelled, serviceOverloaded, serviceUnavailable } from "../errors.js";
import type { PoolSettings } from "../storage/postgres/connection.js";
import { createSpendQueue, type QueueLimits, type WaitingSpend } from "./spend-queue.js";
import { type CreditsStore, isLockTimeout, isTooLate, type Spent } from "./store.js";

/** Spends credits of keys. */
export interface CreditSpender {
  /**
   * Resolves when the spend is durable. Rejects if PostgreSQL cannot be asked, or if it is unknown whether the credits were
   * spent. A call that ends before its spend was sent spends nothing; later, it may spend.
   *
   * @param isCurrent whether the reason for the spend still holds. It is called when a statement is sent, however long the
   *   spend has waited. If it returns false, or the statement begins too late, nothing is spent, and the result is undefined
   */
  spend(call: Call, keyId: string, cost: number, isCurrent: () => boolean): Promise<Spent | undefined>;
}

/** How spends are gathered into statements. */
export interface SpenderSettings {
  /** The maximum number of spends in a statement. */
  readonly maxBatch: number;
  /** The maximum number of statements in flight that spend for several keys. */
  readonly maxStatements: number;
  /** The maximum number of statements in flight that spend for one key whose row was locked. */
  readonly maxSeparateStatements: number;
  /** How long a statement for several keys waits for a locked row. Meanwhile, all of its spends wait. */
  readonly lockWaitMs: number;
  /** How long a statement for one key waits for its locked row. */
  readonly separateLockWaitMs: number;
  /** The maximum numbers of spends that wait for a statement for several keys. */
  readonly waiting: QueueLimits;
  /** The maximum number of spends that wait for a statement for one key, for all such keys. For one: `maxBatch`. */
  readonly maxSeparateWaiting: number;
}

export const spenderSettings: SpenderSettings = {
  maxBatch: 1_000,
  maxStatements: 1,
  maxSeparateStatements: 2,
  lockWaitMs: 100,
  separateLockWaitMs: 2_000,
  // About 500 bytes each.
  waiting: { ofOneWorkspace: 5_000, total: 50_000 },
  maxSeparateWaiting: 10_000,
};

/**
 * The connections for spends: one for each statement in flight. The statement timeout bounds the wait for a database that is
 * too slow.
 */
export const spenderPool: PoolSettings = {
  connections: spenderSettings.maxStatements + spenderSettings.maxSeparateStatements,
  statementMs: 5_000,
};

/** A spend in flight. */
interface Pending extends WaitingSpend {
  isCurrent(): boolean;
  resolve(spent: Spent | undefined): void;
  reject(error: unknown): void;
}

/** The spends of a key that wait for a statement of their own. */
interface SeparateKey {
  waiting: Pending[];
  inFlight: boolean;
}

/**
 * Gathers spends in flight into one statement, because most of a statement's time is its durable commit. Spends that arrive
 * while a statement is in flight are sent with the next one.
 *
 * A statement waits for rows that another replica has locked. If one stays locked, the statement is repeated for the keys
 * whose rows are free, and the others get statements of their own: whatever has locked the row of one key does not delay the
 * spends of other keys for longer than `lockWaitMs`.
 *
 * @param onShed called for each spend that is refused because too many wait
 */
export function createCreditSpender(
  store: CreditsStore,
  onShed: () => void,
  settings: SpenderSettings = spenderSettings,
): CreditSpender {
  const queue = createSpendQueue<Pending>(settings.waiting);
  let statements = 0;
  let starting = false;
  /** The keys whose rows were locked, until none of their spends is left. */
  const separate = new Map<string, SeparateKey>();
  let separateStatements = 0;
  let separateWaiting = 0;

  function enqueue(
    keyId: string,
    cost: number,
    workspaceId: string | undefined,
    isCurrent: () => boolean,
  ): Cancellable<Spent | undefined> {
    let pending: Pending | undefined;
    const result = new Promise<Spent | undefined>((resolve, reject) => {
      // Not by object spread, which costs as much as the rest of the spend.
      pending = { keyId, cost, workspaceId, isCurrent, cancelled: false, resolve, reject };
      if (queue.add(pending)) start();
      else shed(pending);
    });
    return {
      result,
      cancel() {
        if (pending === undefined) return;
        pending.cancelled = true;
        pending.reject(cancelled());
      },
    };
  }

  function shed({ reject }: Pending): void {
    onShed();
    reject(serviceOverloaded());
  }

  /** Sends a statement, after this turn of the event loop: requests that arrived together are sent together. */
  function start(): void {
    if (starting || statements >= settings.maxStatements) return;
    starting = true;
    setImmediate(() => {
      starting = false;
      sendNext();
    });
  }

  function sendNext(): void {
    for (let taken = queue.take(settings.maxBatch); taken.length > 0; taken = queue.take(settings.maxBatch)) {
      const batch = taken.filter(({ keyId }) => !separate.has(keyId));
      for (const spend of taken) if (separate.has(spend.keyId)) setApart(spend);
      if (batch.length === 0) continue;
      statements += 1;
      void send(batch).finally(() => {
        statements -= 1;
        sendNext();
      });
      return;
    }
  }

  /** Spends for several keys. Those whose rows are locked or missing follow in statements of their own. */
  async function send(batch: readonly Pending[]): Promise<void> {
    try {
      const sent = await sendWanted(batch, settings.lockWaitMs).catch((error) => {
        if (!isLockTimeout(error)) throw error;
        return sendWanted(batch, 0);
      });
      for (const [spend, outcome] of sent) {
        if (outcome === undefined) setApart(spend);
        else spend.resolve(outcome);
      }
      sendSeparately();
    } catch (error) {
      fail(batch, error);
    }
  }

  /** Sends a statement with the spends that are still wanted. Undefined: the row of the key is locked or missing. */
  async function sendWanted(
    batch: readonly Pending[],
    lockWaitMs: number,
  ): Promise<(readonly [Pending, Spent | undefined])[]> {
    const wanted = batch.filter(isWanted);
    const outcomes = wanted.length === 0 ? [] : await store.spend(wanted, lockWaitMs);
    return wanted.map((spend, place) => [spend, outcomes[place]]);
  }

  /**
   * Asked for each statement anew: a spend may have waited for seconds, in which its caller or its key was revoked. A spend
   * that is not wanted once is never sent.
   */
  function isWanted(spend: Pending): boolean {
    if (!spend.cancelled && !spend.isCurrent()) {
      spend.cancelled = true;
      spend.resolve(undefined);
    }
    return !spend.cancelled;
  }

  function fail(batch: readonly Pending[], error: unknown): void {
    for (const { resolve, reject } of batch) {
      // The statement was delayed on its way, and whether the reasons of its spends still hold is not known.
      if (isTooLate(error)) resolve(undefined);
      else reject(error);
    }
  }

  /** Lets a spend wait for a statement for its key alone. */
  function setApart(spend: Pending): void {
    const key = separate.get(spend.keyId) ?? { waiting: [], inFlight: false };
    if (key.waiting.length >= settings.maxBatch || separateWaiting >= settings.maxSeparateWaiting) {
      shed(spend);
      return;
    }
    separateWaiting += 1;
    key.waiting.push(spend);
    separate.set(spend.keyId, key);
  }

  function sendSeparately(): void {
    for (const [keyId, key] of separate) {
      if (separateStatements >= settings.maxSeparateStatements) return;
      if (key.inFlight) continue;
      const batch = key.waiting;
      separateWaiting -= batch.length;
      key.waiting = [];
      key.inFlight = true;
      separateStatements += 1;
      void sendForOneKey(batch).finally(() => {
        key.inFlight = false;
        separateStatements -= 1;
        separate.delete(keyId);
        // Its next turn comes after those of the other keys.
        if (key.waiting.length > 0) separate.set(keyId, key);
        sendSeparately();
      });
    }
  }

  async function sendForOneKey(batch: readonly Pending[]): Promise<void> {
    try {
      for (const [{ resolve, reject }, outcome] of await sendWanted(batch, settings.separateLockWaitMs)) {
        if (outcome === undefined) reject(serviceUnavailable(undefined, "The credits of this key are not available"));
        else resolve(outcome);
      }
    } catch (error) {
      fail(batch, error);
    }
  }

  return {
    spend: (call, keyId, cost, isCurrent) =>
      runUnlessAborted(call, () => enqueue(keyId, cost, call.workspaceId, isCurrent)),
  };
}
