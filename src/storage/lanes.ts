// By hand: postgres.js deals statements out to its connections in turn, also behind one that waits for a lock. There they
// would wait with it, and could not be taken back once their caller has gone.
import type { Sql } from "./postgres.js";
import { createWaitingRoom, type Waiter } from "./waiting-room.js";

/** One connection, with what is on its way there. */
export interface Lane {
  /** A postgres.js of its own, with one connection. */
  readonly sql: Sql;
  underWay: number;
  /** When the statement that runs there got its turn, in milliseconds. */
  movedAt: number;
  /** Whether the server was ever asked to cancel what runs there. */
  disturbed: boolean;
}

/** Where statements get a connection. */
export interface Lanes {
  /** Some of the connections. */
  readonly first: Lane;
  /** Lets somebody go on with a lane: at once, or as soon as it is their turn. To be followed by `leave`. */
  enter(waiter: Waiter<Lane>): void;
  /** Takes back who has not had a turn yet. False if it is too late. */
  withdraw(waiter: Waiter<Lane>): boolean;
  leave(lane: Lane): void;
  /** Goes on with other connections. Who waits has not lost anything. */
  replace(pools: readonly Sql[]): void;
  use(): LanesUse;
}

/** How many connections are in use, how many are not, and how many statements wait for others to be done. */
export interface LanesUse {
  readonly busy: number;
  readonly free: number;
  readonly waiting: number;
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

export function createLanes(pools: readonly Sql[]): Lanes {
  let lanes = pools.map(openLane);
  const waiting = createWaitingRoom<Lane>();
  /** How long a statement takes at present. */
  let usualMs = 0;

  /** The lane with the least under way. There is none while on every one a statement takes long. */
  function findPlace(): Lane | undefined {
    let best: Lane | undefined;
    let slowSince: number | undefined;
    const most = Math.min(mostUnderWay, slowMs / usualMs);
    for (const lane of lanes) {
      if (lane.underWay === 0) return lane;
      slowSince ??= performance.now() - slowMs;
      if (lane.movedAt > slowSince && lane.underWay < (best?.underWay ?? most)) best = lane;
    }
    return best;
  }

  function admit(waiter: Waiter<Lane>, lane: Lane): void {
    if (lane.underWay === 0) lane.movedAt = performance.now();
    lane.underWay += 1;
    waiter.goOn(lane);
  }

  /** Lets in whoever can be sent on their way by now: as many as before there was a queue, or it would never end. */
  function admitWaiting(): void {
    while (waiting.size > 0) {
      const lane = findPlace();
      const next = lane && waiting.next();
      if (lane === undefined || next === undefined) return;
      admit(next, lane);
    }
  }

  return {
    get first() {
      return lanes[0] as Lane;
    },
    enter(waiter) {
      const lane = waiting.size === 0 ? findPlace() : undefined;
      if (lane === undefined) return waiting.enter(waiter);
      waiting.passedBy();
      admit(waiter, lane);
    },
    withdraw: waiting.withdraw,
    leave(lane) {
      const now = performance.now();
      usualMs += (now - lane.movedAt - usualMs) * newest;
      lane.underWay -= 1;
      lane.movedAt = now;
      admitWaiting();
    },
    replace(others) {
      lanes = others.map(openLane);
      admitWaiting();
    },
    use() {
      const busy = lanes.filter(({ underWay }) => underWay > 0).length;
      const underWay = lanes.reduce((sum, lane) => sum + lane.underWay, 0);
      return { busy, free: lanes.length - busy, waiting: underWay - busy + waiting.size };
    },
  };
}

function openLane(sql: Sql): Lane {
  return { sql, underWay: 0, movedAt: 0, disturbed: false };
}
