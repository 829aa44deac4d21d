import { type Call, type Cancellable, runUnlessAborted } from "../call/call.js";
import { cancelled, serviceOverloaded, serviceUnavailable } from "../errors.js";
import type { PoolSettings } from "../storage/postgres/connection.js";
import { createSpendQueue, type QueueLimits, type WaitingSpend } from "./spend-queue.js";
import { type CreditsStore, isLockTimeout, type Spent } from "./store.js";

/** Spends credits of keys. */
export interface CreditSpender {
  /**
   * Resolves when the spend is durable. Rejects if PostgreSQL cannot be asked, or if it is unknown whether the credits were
   * spent. A call that ends before its spend was sent spends nothing; later, it may spend.
   */
  spend(call: Call, keyId: string, cost: number): Promise<Spent>;
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
  resolve(spent: Spent): void;
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

  function enqueue(keyId: string, cost: number, workspaceId: string | undefined): Cancellable<Spent> {
    let pending: Pending | undefined;
    const result = new Promise<Spent>((resolve, reject) => {
      pending = { keyId, cost, workspaceId, cancelled: false, resolve, reject };
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
      const outcomes = await store.spend(batch, settings.lockWaitMs).catch((error) => {
        if (!isLockTimeout(error)) throw error;
        return store.spend(batch, 0);
      });
      for (const [place, spend] of batch.entries()) {
        const outcome = outcomes[place];
        if (outcome === undefined) setApart(spend);
        else spend.resolve(outcome);
      }
      sendSeparately();
    } catch (error) {
      for (const { reject } of batch) reject(error);
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
      const batch = key.waiting.filter((spend) => !spend.cancelled);
      separateWaiting -= key.waiting.length;
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
    if (batch.length === 0) return;
    try {
      const outcomes = await store.spend(batch, settings.separateLockWaitMs);
      for (const [place, { resolve, reject }] of batch.entries()) {
        const outcome = outcomes[place];
        if (outcome === undefined) reject(serviceUnavailable(undefined, "The credits of this key are not available"));
        else resolve(outcome);
      }
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
  }

  return {
    spend: (call, keyId, cost) => runUnlessAborted(call, () => enqueue(keyId, cost, call.workspaceId)),
  };
}
