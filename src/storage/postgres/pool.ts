// By hand: postgres.js deals statements out to its connections in turn, also behind one that waits for a lock. There they
// would wait with it, and could not be taken back once their caller has gone.

import type { Waiter } from "./acquire-queue.js";
import type { Sql } from "./connection.js";
import { createFairQueue, type FairQueue } from "./fair-queue.js";
import { type ClassRules, type Origin, ownOrigin, type PoolRules, type StatementClass, unlimited } from "./shares.js";

/** One connection, with what is on its way there. */
export interface PooledConnection {
  /** A postgres.js of its own, with one connection. */
  readonly sql: Sql;
  inFlight: number;
  /** When the statement that runs there got its turn, in milliseconds. */
  lastProgressAt: number;
  /** The idle time of this process at that moment. */
  idleAtProgress: number;
  /** Whose statements are on their way there: only those of one account at a time. */
  account: Account | undefined;
  /** Whether the server was ever asked to cancel what runs there. */
  cancelSent: boolean;
}

/** A statement that needs a connection. */
export interface PoolWaiter extends Waiter<PooledConnection> {
  /** Absent: it is the service's own. */
  readonly origin?: Origin | undefined;
}

/** Where statements get a connection. */
export interface Pool {
  /** Some of the connections. */
  readonly first: PooledConnection;
  /** Lets somebody go on with a lane: at once, or as soon as it is their turn. To be followed by `leave`. */
  acquire(waiter: PoolWaiter): void;
  /** Takes back who has not had a turn yet. False if it is too late. */
  cancel(waiter: PoolWaiter): boolean;
  release(lane: PooledConnection): void;
  /** Goes on with other connections. Who waits has not lost anything. */
  replace(pools: readonly Sql[]): void;
  usage(): PoolUsage;
}

/** How many connections are in use, how many are not, and how many statements wait for others to be done. */
export interface PoolUsage {
  readonly busy: number;
  readonly free: number;
  readonly waiting: Readonly<Record<StatementClass, number>>;
}

/** The statements of one class, whoever they are for. */
interface Class extends ClassRules {
  readonly name: StatementClass;
  /** How many connections it uses. */
  lanes: number;
  /** Those that use a connection or wait for one. */
  readonly accounts: Map<string, Account>;
  /** Those that wait, the next one first. */
  readonly waiting: Set<Account>;
}

/** The statements of one class for one workspace, or for somebody else who is accountable. */
interface Account {
  readonly of: Class;
  readonly name: string;
  /** How many connections it uses. */
  lanes: number;
  /** Made when somebody has to wait: most never do. */
  queue?: FairQueue<PooledConnection>;
}

/**
 * How many statements may be on their way on one connection: sent together, they cost half of what each costs alone. More
 * than a few gain nothing, and would wait where they cannot be taken back.
 */
const mostUnderWay = 16;

/** Nobody is sent to queue behind a statement that has been running for longer than this, or behind so much work. */
const slowMs = 20;

/** How much the last statement counts in what is taken for usual. */
const newest = 0.1;

/** A statement counts as no slower than this, so that a few slow ones do not hide for long how quick the others are. */
const slowestMs = 2 * slowMs;

/**
 * Deals connections out to statements. A connection serves one account at a time, so no statement ever waits in
 * PostgreSQL behind one of another workspace. An account uses no more connections than its share, and while others wait
 * for one, it sends no more on those that it has: they become free, and go to whoever is next.
 *
 * @param idleMs for how long this process has had nothing to do so far. How long statements take is measured by that: a
 *   process that is busy reads an answer long after it came, and if it then sent less, it would get even less done
 */
export function createPool(
  pools: readonly Sql[],
  rules: PoolRules = unlimited,
  idleMs: () => number = () => performance.nodeTiming.idleTime,
): Pool {
  let lanes = pools.map(openLane);
  let free = lanes.length;
  const classes = (Object.keys(rules) as StatementClass[]).map(
    (name): Class => ({ name, ...rules[name], lanes: 0, accounts: new Map(), waiting: new Set() }),
  );
  const classOf = Object.fromEntries(classes.map((one) => [one.name, one])) as Record<StatementClass, Class>;
  /** How long a statement takes at present. */
  let usualMs = 0;

  function accountOf({ class: name, account }: Origin): Account {
    const of = classOf[name];
    const known = of.accounts.get(account);
    if (known !== undefined) return known;
    const opened: Account = { of, name: account, lanes: 0 };
    of.accounts.set(account, opened);
    return opened;
  }

  /** An account that uses nothing and waits for nothing is forgotten. */
  function forgetIdle(account: Account): void {
    if (account.lanes === 0 && (account.queue?.isEmpty ?? true)) account.of.accounts.delete(account.name);
  }

  /** Whether a class may use one more connection: not one of those that are kept for others. */
  function mayTake(one: Class): boolean {
    if (free === 0 || one.lanes < one.kept) return free > 0;
    let keptForOthers = 0;
    for (const other of classes) if (other !== one) keptForOthers += Math.max(0, other.kept - other.lanes);
    return free > keptForOthers;
  }

  /** Whether somebody else could use a connection as soon as one is free. */
  function isContended(account: Account): boolean {
    for (const one of classes) {
      for (const other of one.waiting) {
        if (other.queue?.isEmpty) {
          one.waiting.delete(other);
          forgetIdle(other);
        } else if (other !== account && other.lanes < one.share) return true;
      }
    }
    return false;
  }

  /** Where a statement can be sent right now: on a connection of its own, or behind others of its account. */
  function findPlace(account: Account): PooledConnection | undefined {
    const { of } = account;
    if (account.lanes < of.share && mayTake(of)) return lanes.find(({ inFlight: underWay }) => underWay === 0);
    if (account.lanes === 0 || !of.pipelined || isContended(account)) return undefined;
    let best: PooledConnection | undefined;
    for (const lane of lanes) {
      if (lane.account === account && hasPlace(lane) && lane.inFlight < (best?.inFlight ?? mostUnderWay)) best = lane;
    }
    return best;
  }

  /** Whether one more can be sent behind what is on its way: not while a statement takes long, nor if it would wait long. */
  function hasPlace({ inFlight: underWay, lastProgressAt: movedAt }: PooledConnection): boolean {
    return underWay < Math.min(mostUnderWay, slowMs / usualMs) && movedAt > performance.now() - slowMs;
  }

  function noteMove(lane: PooledConnection, idle: number): void {
    lane.lastProgressAt = performance.now();
    lane.idleAtProgress = idle;
  }

  function admit(waiter: Waiter<PooledConnection>, account: Account, lane: PooledConnection): void {
    if (lane.inFlight === 0) {
      noteMove(lane, idleMs());
      lane.account = account;
      account.lanes += 1;
      account.of.lanes += 1;
      free -= 1;
    }
    lane.inFlight += 1;
    waiter.onAcquired(lane);
  }

  function release(lane: PooledConnection, account: Account): void {
    lane.account = undefined;
    account.lanes -= 1;
    account.of.lanes -= 1;
    free += 1;
    forgetIdle(account);
  }

  /** Sends what waits, as far as it may be sent by now. */
  function admitWaiting(): void {
    const given: PooledConnection[] = [];
    for (let lane = giveFree(); lane !== undefined; lane = giveFree()) given.push(lane);
    // As many as before there was a queue, or it would never end.
    for (const lane of given) fill(lane);
  }

  /** Gives a free connection to whoever is next. Undefined if there is none, or nobody who may have it. */
  function giveFree(): PooledConnection | undefined {
    for (const one of classes) {
      for (const account of one.waiting) {
        if (!mayTake(one)) break;
        if (account.lanes >= one.share) continue;
        const waiter = account.queue?.next();
        one.waiting.delete(account);
        if (!account.queue?.isEmpty) one.waiting.add(account);
        else if (waiter === undefined) forgetIdle(account);
        if (waiter === undefined) continue;
        const lane = lanes.find(({ inFlight: underWay }) => underWay === 0) as PooledConnection;
        admit(waiter, account, lane);
        return lane;
      }
    }
    return undefined;
  }

  /** Sends what waits behind what is on its way, of the same account. */
  function fill(lane: PooledConnection): void {
    const { account } = lane;
    if (!account?.of.pipelined) return;
    while (hasPlace(lane)) {
      const waiter = account.queue?.next();
      if (waiter === undefined) return;
      admit(waiter, account, lane);
    }
  }

  return {
    get first() {
      return lanes[0] as PooledConnection;
    },
    acquire(waiter) {
      const { origin = ownOrigin } = waiter;
      const account = accountOf(origin);
      const lane = (account.queue?.isEmpty ?? true) ? findPlace(account) : undefined;
      if (lane !== undefined) {
        account.queue?.skipped(origin.flow);
        return admit(waiter, account, lane);
      }
      account.queue ??= createFairQueue();
      account.queue.enter(waiter, origin.flow);
      account.of.waiting.add(account);
    },
    cancel(waiter) {
      const { origin = ownOrigin } = waiter;
      const account = classOf[origin.class].accounts.get(origin.account);
      return account?.queue?.withdraw(waiter, origin.flow) ?? false;
    },
    release(lane) {
      const idle = idleMs();
      usualMs += (Math.min(idle - lane.idleAtProgress, slowestMs) - usualMs) * newest;
      lane.inFlight -= 1;
      noteMove(lane, idle);
      const { account } = lane;
      if (account !== undefined && lane.inFlight === 0) release(lane, account);
      if (classes.every(({ waiting }) => waiting.size === 0)) return;
      admitWaiting();
      if (lane.account !== undefined && !isContended(lane.account)) fill(lane);
    },
    replace(others) {
      const old = lanes;
      lanes = others.map(openLane);
      for (const lane of old) if (lane.account !== undefined) release(lane, lane.account);
      free = lanes.length;
      admitWaiting();
    },
    usage() {
      const busy = lanes.length - free;
      const waiting = Object.fromEntries(classes.map((one) => [one.name, countWaiting(one)]));
      return { busy, free, waiting: waiting as Record<StatementClass, number> };
    },
  };

  function countWaiting(one: Class): number {
    let waiting = 0;
    for (const { queue } of one.waiting) waiting += queue?.size ?? 0;
    for (const { account, inFlight: underWay } of lanes) if (account?.of === one) waiting += underWay - 1;
    return waiting;
  }
}

function openLane(sql: Sql): PooledConnection {
  return { sql, inFlight: 0, lastProgressAt: 0, idleAtProgress: 0, account: undefined, cancelSent: false };
}
