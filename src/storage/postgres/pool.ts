// By hand: postgres.js distributes statements over its connections in turn, also behind one that waits for a lock. There
// they would wait with it, and could not be cancelled once their caller has gone.
import type { Waiter } from "./acquire-queue.js";
import type { Sql } from "./connection.js";
import { createFairQueue, type FairQueue } from "./fair-queue.js";
import { type ClassRules, type Origin, ownOrigin, type PoolRules, type StatementClass, unlimited } from "./shares.js";

/** One connection, and the statements in flight on it. */
export interface PooledConnection {
  /** A postgres.js instance with one connection. */
  readonly sql: Sql;
  inFlight: number;
  /** When the statement that runs there started, in milliseconds. */
  lastProgressAt: number;
  /** The idle time of this process at that moment. */
  idleAtProgress: number;
  /** Whose statements are in flight there: only those of one account at a time. */
  account: Account | undefined;
  /** Whether a cancel request was ever sent for a statement there. */
  cancelSent: boolean;
}

/** A statement that needs a connection. */
export interface PoolWaiter extends Waiter<PooledConnection> {
  /** Absent: a statement of the service itself. */
  readonly origin?: Origin | undefined;
}

/** Gives connections to statements. */
export interface Pool {
  /** Calls `onAcquired` with a connection: at once, or when it is the waiter's turn. `release` must follow. */
  acquire(waiter: PoolWaiter): void;
  /** Removes a waiter that has not acquired. False if it is too late. */
  cancel(waiter: PoolWaiter): boolean;
  release(connection: PooledConnection): void;
  /** Continues with other connections. Waiters keep their places. */
  replace(connections: readonly Sql[]): void;
  usage(): PoolUsage;
}

/** How many connections are in use, how many are free, and how many statements wait. */
export interface PoolUsage {
  readonly busy: number;
  readonly free: number;
  readonly waiting: Readonly<Record<StatementClass, number>>;
}

/** The statements of one class. */
interface Class extends ClassRules {
  readonly name: StatementClass;
  /** How many connections it uses. */
  connections: number;
  /** Accounts that use a connection or wait for one. */
  readonly accounts: Map<string, Account>;
  /** Accounts that wait, the next one first. */
  readonly waiting: Set<Account>;
}

/** The statements of one class for one workspace, or another accountable party. */
interface Account {
  readonly of: Class;
  readonly name: string;
  /** How many connections it uses. */
  connections: number;
  /** Created when a statement has to wait: most accounts never need one. */
  queue?: FairQueue<PooledConnection>;
}

/**
 * How many statements may be in flight on one connection. Pipelined, a statement costs half of what it costs alone. More than a
 * few gain nothing, and statements in flight cannot be removed like waiting ones.
 */
const maxInFlight = 16;

/** No statement is pipelined behind one that has run for longer than this, or behind this much work. */
const slowMs = 20;

/** The weight of the latest statement in the moving average of durations. */
const newestWeight = 0.1;

/** The longest duration that counts, so that a few slow statements do not dominate the average for long. */
const maxCountedMs = 2 * slowMs;

/**
 * Shares connections between accounts. A connection serves one account at a time, so no statement waits in PostgreSQL
 * behind one of another workspace. An account uses at most its share, and while others wait for a connection, it
 * sends nothing more on those that it has: they become free for the next account.
 *
 * @param idleMs the total idle time of this process. Durations are measured by it: a busy process reads a response long after
 *   it arrived, and if it then sent less, it would get even less done
 */
export function createPool(
  pooled: readonly Sql[],
  rules: PoolRules = unlimited,
  idleMs: () => number = () => performance.nodeTiming.idleTime,
): Pool {
  let connections = pooled.map(openConnection);
  let free = connections.length;
  const classes = (Object.keys(rules) as StatementClass[]).map(
    (name): Class => ({ name, ...rules[name], connections: 0, accounts: new Map(), waiting: new Set() }),
  );
  const classOf = Object.fromEntries(classes.map((one) => [one.name, one])) as Record<StatementClass, Class>;
  /** The moving average of the duration of a statement. */
  let averageMs = 0;

  function accountOf({ class: name, account }: Origin): Account {
    const of = classOf[name];
    const known = of.accounts.get(account);
    if (known !== undefined) return known;
    const opened: Account = { of, name: account, connections: 0 };
    of.accounts.set(account, opened);
    return opened;
  }

  /** Drops an account that uses no connection and has no waiters. */
  function dropIfIdle(account: Account): void {
    if (account.connections === 0 && (account.queue?.isEmpty ?? true)) account.of.accounts.delete(account.name);
  }

  /** Whether a class may use one more connection: not one that is reserved for another class. */
  function mayTake(one: Class): boolean {
    if (free === 0 || one.connections < one.reserved) return free > 0;
    let reservedForOthers = 0;
    for (const other of classes) {
      if (other !== one) reservedForOthers += Math.max(0, other.reserved - other.connections);
    }
    return free > reservedForOthers;
  }

  /** Whether another account could use a connection as soon as one is free. */
  function isContended(account: Account): boolean {
    for (const one of classes) {
      for (const other of one.waiting) {
        if (other.queue?.isEmpty) {
          one.waiting.delete(other);
          dropIfIdle(other);
        } else if (other !== account && other.connections < one.share) return true;
      }
    }
    return false;
  }

  const isFree = ({ inFlight }: PooledConnection) => inFlight === 0;

  /** A free connection, or one of the account's own to pipeline on; undefined if the statement has to wait. */
  function findConnection(account: Account): PooledConnection | undefined {
    const { of } = account;
    if (account.connections < of.share && mayTake(of)) return connections.find(isFree);
    if (account.connections === 0 || !of.pipelined || isContended(account)) return undefined;
    let best: PooledConnection | undefined;
    for (const connection of connections) {
      const isOwn = connection.account === account && mayPipeline(connection);
      if (isOwn && connection.inFlight < (best?.inFlight ?? maxInFlight)) best = connection;
    }
    return best;
  }

  /** Whether one more statement can be pipelined: not behind a slow one, and not if it would wait for long. */
  function mayPipeline({ inFlight, lastProgressAt }: PooledConnection): boolean {
    return inFlight < Math.min(maxInFlight, slowMs / averageMs) && lastProgressAt > performance.now() - slowMs;
  }

  function recordProgress(connection: PooledConnection, idle: number): void {
    connection.lastProgressAt = performance.now();
    connection.idleAtProgress = idle;
  }

  function assign(waiter: Waiter<PooledConnection>, account: Account, connection: PooledConnection): void {
    if (connection.inFlight === 0) {
      recordProgress(connection, idleMs());
      connection.account = account;
      account.connections += 1;
      account.of.connections += 1;
      free -= 1;
    }
    connection.inFlight += 1;
    waiter.onAcquired(connection);
  }

  function detach(connection: PooledConnection, account: Account): void {
    connection.account = undefined;
    account.connections -= 1;
    account.of.connections -= 1;
    free += 1;
    dropIfIdle(account);
  }

  /** Assigns free connections to waiters, and pipelines behind them: fewer statements would never drain the queue. */
  function assignWaiting(): void {
    const assigned: PooledConnection[] = [];
    for (let given = assignFree(); given !== undefined; given = assignFree()) assigned.push(given);
    for (const connection of assigned) pipelineWaiting(connection);
  }

  /** Assigns a free connection to the next waiter. Undefined if there is none, or no waiter may have it. */
  function assignFree(): PooledConnection | undefined {
    for (const one of classes) {
      for (const account of one.waiting) {
        if (!mayTake(one)) break;
        if (account.connections >= one.share) continue;
        const waiter = account.queue?.next();
        one.waiting.delete(account);
        if (!account.queue?.isEmpty) one.waiting.add(account);
        else if (waiter === undefined) dropIfIdle(account);
        if (waiter === undefined) continue;
        const connection = connections.find(isFree) as PooledConnection;
        assign(waiter, account, connection);
        return connection;
      }
    }
    return undefined;
  }

  /** Pipelines waiters of the same account. */
  function pipelineWaiting(connection: PooledConnection): void {
    const { account } = connection;
    if (!account?.of.pipelined) return;
    while (mayPipeline(connection)) {
      const waiter = account.queue?.next();
      if (waiter === undefined) return;
      assign(waiter, account, connection);
    }
  }

  function countWaiting(one: Class): number {
    let waiting = 0;
    for (const { queue } of one.waiting) waiting += queue?.size ?? 0;
    for (const { account, inFlight } of connections) if (account?.of === one) waiting += inFlight - 1;
    return waiting;
  }

  return {
    acquire(waiter) {
      const { origin = ownOrigin } = waiter;
      const account = accountOf(origin);
      const connection = (account.queue?.isEmpty ?? true) ? findConnection(account) : undefined;
      if (connection !== undefined) {
        account.queue?.acquiredImmediately(origin.flow);
        return assign(waiter, account, connection);
      }
      account.queue ??= createFairQueue();
      account.queue.add(waiter, origin.flow);
      account.of.waiting.add(account);
    },
    cancel(waiter) {
      const { origin = ownOrigin } = waiter;
      const account = classOf[origin.class].accounts.get(origin.account);
      return account?.queue?.remove(waiter, origin.flow) ?? false;
    },
    release(connection) {
      const idle = idleMs();
      averageMs += (Math.min(idle - connection.idleAtProgress, maxCountedMs) - averageMs) * newestWeight;
      connection.inFlight -= 1;
      recordProgress(connection, idle);
      const { account } = connection;
      if (account !== undefined && connection.inFlight === 0) detach(connection, account);
      if (classes.every(({ waiting }) => waiting.size === 0)) return;
      assignWaiting();
      if (connection.account !== undefined && !isContended(connection.account)) pipelineWaiting(connection);
    },
    replace(others) {
      const replaced = connections;
      connections = others.map(openConnection);
      for (const connection of replaced) {
        if (connection.account !== undefined) detach(connection, connection.account);
      }
      free = connections.length;
      assignWaiting();
    },
    usage() {
      const busy = connections.length - free;
      const waiting = Object.fromEntries(classes.map((one) => [one.name, countWaiting(one)]));
      return { busy, free, waiting: waiting as Record<StatementClass, number> };
    },
  };
}

function openConnection(sql: Sql): PooledConnection {
  return { sql, inFlight: 0, lastProgressAt: 0, idleAtProgress: 0, account: undefined, cancelSent: false };
}
