import { type CoDelOptions, createCoDel } from "../../overload/codel.js";

/** Who waits for something, and is told either that it is there or that there is no point in waiting. */
export interface Waiter<T> {
  onAcquired(what: T): void;
  /** Absent: waits for as long as it takes. */
  onRejected?(): void;
}

/** Where statements wait for a connection, first come, first served. */
export interface AcquireQueue<T> {
  readonly size: number;
  /** Lets somebody wait. In a queue that stands, those before who have waited too long make room. */
  add(waiter: Waiter<T>): void;
  /** Takes out whoever is next. Those before who have waited too long are refused. */
  next(): Waiter<T> | undefined;
  /** Takes back who has not had a turn yet. False if it is too late. */
  remove(waiter: Waiter<T>): boolean;
  /** Somebody had no need to wait. */
  acquiredImmediately(): void;
}

/**
 * A burst may take five seconds, half of what a call may take: a thousand changes at once, on a database that has other
 * work, too. But who comes to a queue that has stood for a second may wait for 250 ms, and pushes out two of those who have
 * waited longer: a burst after which nobody comes is served whole, and of an overload no burst is left.
 */
const waitingBounds: CoDelOptions = { targetMs: 250, burstMs: 5_000, intervalMs: 1_000 };

/** When somebody last had a turn, in milliseconds. */
export interface LastTurn {
  at: number;
}

/** @param lastTurn shared by queues that take turns, of which each moves less often than all of them together */
export function createAcquireQueue<T>(
  bounds: CoDelOptions = waitingBounds,
  lastTurn: LastTurn = { at: Number.NEGATIVE_INFINITY },
): AcquireQueue<T> {
  const { targetMs, intervalMs } = bounds;
  const patience = createCoDel(bounds);
  const waiting = new Map<Waiter<T>, { readonly since: number; readonly limit: number }>();
  let looking: NodeJS.Timeout | undefined;
  /** When somebody came who found nobody waiting. */
  let begunAt = 0;

  /** Where nobody gets a turn, waiting ends nevertheless: a queue that does not move for a whole interval is no burst. */
  function look(): void {
    const now = performance.now();
    const [[, first] = []] = waiting;
    if (first !== undefined) patience.recordWait(now - first.since, now);
    const stuck = now - Math.max(lastTurn.at, begunAt) > intervalMs;
    for (const [waiter, { since, limit }] of waiting) {
      if (now - since > (stuck ? targetMs : limit)) refuse(waiter);
    }
    if (waiting.size > 0) return;
    clearInterval(looking);
    looking = undefined;
  }

  function refuse(waiter: Waiter<T>): void {
    if (waiter.onRejected === undefined) return;
    waiting.delete(waiter);
    waiter.onRejected();
  }

  /** Refuses those who have waited for longest, if for too long: two, so that a queue to which others come gets shorter. */
  function pushOut(now: number, limit: number): void {
    let left = 2;
    for (const [waiter, { since }] of waiting) {
      if (left-- === 0 || now - since <= limit) return;
      refuse(waiter);
    }
  }

  return {
    get size() {
      return waiting.size;
    },
    add(waiter) {
      const now = performance.now();
      const limit = patience.maxWait(now);
      pushOut(now, limit);
      if (waiting.size === 0) begunAt = now;
      waiting.set(waiter, { since: now, limit });
      looking ??= setInterval(look, targetMs).unref();
    },
    next() {
      const now = performance.now();
      lastTurn.at = now;
      for (const [waiter, { since, limit }] of waiting) {
        patience.recordWait(now - since, now);
        if (waiter.onRejected === undefined || now - since <= limit) {
          waiting.delete(waiter);
          return waiter;
        }
        refuse(waiter);
      }
      return undefined;
    },
    remove: (waiter) => waiting.delete(waiter),
    acquiredImmediately: () => patience.recordWait(0, 0),
  };
}
