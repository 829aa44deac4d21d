import { type CoDelOptions, createCoDel } from "../../overload/codel.js";

/** A statement that waits for a connection. */
export interface Waiter<T> {
  onAcquired(acquired: T): void;
  /** Absent: it waits for as long as it takes. */
  onRejected?(): void;
}

/** The statements that wait for a connection, first in, first out. */
export interface AcquireQueue<T> {
  readonly size: number;
  /** Adds a waiter. In a standing queue, up to two waiters that exceed the limit are rejected. */
  add(waiter: Waiter<T>): void;
  /** Removes the next waiter. Those before it that exceed their limit are rejected. */
  next(): Waiter<T> | undefined;
  /** Removes a waiter that has not acquired. False if it is too late. */
  remove(waiter: Waiter<T>): boolean;
  /** A statement acquired a connection without waiting. */
  acquiredImmediately(): void;
}

/**
 * A burst may take five seconds, half of a call's time limit: for example a thousand changes at once, on a database that has
 * other work. Once the queue has been standing for a second, each arrival gets a limit of 250 ms and rejects up to two
 * waiters that have waited longer. A single burst is served in full; sustained overload keeps the queue short.
 */
const codelOptions: CoDelOptions = { targetMs: 250, burstMs: 5_000, intervalMs: 1_000 };

/** When a waiter last acquired, in milliseconds. */
export interface LastAcquired {
  at: number;
}

/** @param lastAcquired shared by queues that take turns: each moves less often than all of them together */
export function createAcquireQueue<T>(
  options: CoDelOptions = codelOptions,
  lastAcquired: LastAcquired = { at: Number.NEGATIVE_INFINITY },
): AcquireQueue<T> {
  const { targetMs, intervalMs } = options;
  const codel = createCoDel(options);
  const waiting = new Map<Waiter<T>, { readonly since: number; readonly limit: number }>();
  let timer: NodeJS.Timeout | undefined;
  /** When the queue was last empty. */
  let startedAt = 0;

  /** Rejects waiters although none acquires: a queue that does not move for a whole interval is no burst. */
  function check(): void {
    const now = performance.now();
    const [[, first] = []] = waiting;
    if (first !== undefined) codel.recordWait(now - first.since, now);
    const isStuck = now - Math.max(lastAcquired.at, startedAt) > intervalMs;
    for (const [waiter, { since, limit }] of waiting) {
      if (now - since > (isStuck ? targetMs : limit)) reject(waiter);
    }
    if (waiting.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  }

  function reject(waiter: Waiter<T>): void {
    if (waiter.onRejected === undefined) return;
    waiting.delete(waiter);
    waiter.onRejected();
  }

  /** Rejects the two longest waiters, if they exceed the limit: two, so that a growing queue gets shorter. */
  function rejectLongest(now: number, limit: number): void {
    let left = 2;
    for (const [waiter, { since }] of waiting) {
      if (left-- === 0 || now - since <= limit) return;
      reject(waiter);
    }
  }

  return {
    get size() {
      return waiting.size;
    },
    add(waiter) {
      const now = performance.now();
      const limit = codel.maxWait(now);
      rejectLongest(now, limit);
      if (waiting.size === 0) startedAt = now;
      waiting.set(waiter, { since: now, limit });
      timer ??= setInterval(check, targetMs).unref();
    },
    next() {
      const now = performance.now();
      lastAcquired.at = now;
      for (const [waiter, { since, limit }] of waiting) {
        codel.recordWait(now - since, now);
        if (waiter.onRejected === undefined || now - since <= limit) {
          waiting.delete(waiter);
          return waiter;
        }
        reject(waiter);
      }
      return undefined;
    },
    remove: (waiter) => waiting.delete(waiter),
    acquiredImmediately: () => codel.recordWait(0, 0),
  };
}
