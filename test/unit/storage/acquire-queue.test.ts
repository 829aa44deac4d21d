import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createAcquireQueue } from "../../../src/storage/postgres/acquire-queue.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** An acquire queue, and the names of the waiters that it rejected. */
function openQueue() {
  const queue = createAcquireQueue<string>({ targetMs: 100, burstMs: 3_000, intervalMs: 1_000 });
  const rejected: string[] = [];
  const names = new Map<object, string>();
  const add = (name: string, hasLimit = true) => {
    const onRejected = () => void rejected.push(name);
    const waiter = hasLimit ? { onAcquired() {}, onRejected } : { onAcquired() {} };
    names.set(waiter, name);
    queue.add(waiter);
  };
  const next = () => names.get(queue.next() ?? {});
  return { queue, rejected, add, next };
}

test("acquire queue: waiters acquire first in, first out", () => {
  const { add, next } = openQueue();
  for (const name of ["first", "second"]) add(name);
  expect([next(), next(), next()]).toEqual(["first", "second", undefined]);
});

test("a burst is served in full: no waiter is rejected while the queue gets shorter", () => {
  const { queue, add, next, rejected } = openQueue();
  for (let index = 0; index < 290; index++) add(`${index}`);
  while (queue.size > 0) {
    vi.advanceTimersByTime(10);
    next();
  }
  expect(rejected).toEqual([]);
});

test("load shedding: a burst over its limit is cut, and an arrival in a standing queue evicts two waiters", () => {
  const { add, next, rejected } = openQueue();
  for (let index = 0; index < 40; index++) add(`${index}`);
  for (let served = 0; served < 30; served++) {
    vi.advanceTimersByTime(100);
    next();
  }
  add("later");
  expect(rejected).toEqual(["30", "31"]);
  vi.advanceTimersByTime(200);
  expect(rejected).toHaveLength(11);
});

test("load shedding: a stuck queue rejects waiters after little more than a second, and later arrivals sooner", () => {
  const { add, rejected } = openQueue();
  add("first");
  vi.advanceTimersByTime(1_000);
  expect(rejected).toEqual([]);
  vi.advanceTimersByTime(100);
  expect(rejected).toEqual(["first"]);
  add("later");
  vi.advanceTimersByTime(200);
  expect(rejected).toEqual(["first", "later"]);
});

test("sustained overload soon keeps the queue short: served waiters have waited no longer than the target", () => {
  const { add, next, rejected } = openQueue();
  const waits: number[] = [];
  for (let ms = 0; ms < 4_000; ms += 10) {
    add(`${ms}`);
    add(`${ms}`);
    vi.advanceTimersByTime(10);
    if (ms > 2_500) waits.push(ms + 10 - Number(next()));
    else next();
  }
  expect(Math.max(...waits)).toBeLessThanOrEqual(100);
  expect(rejected.length).toBeGreaterThan(300);
});

test("a waiter without a limit is never rejected", () => {
  const { add, next, rejected } = openQueue();
  add("limited");
  vi.advanceTimersByTime(2_000);
  add("unlimited", false);
  vi.advanceTimersByTime(20_000);
  expect(rejected).toEqual(["limited"]);
  expect(next()).toBe("unlimited");
});

test("a queue that has been empty for a while no longer counts as standing", () => {
  const { queue, add, rejected } = openQueue();
  add("burst");
  vi.advanceTimersByTime(3_000);
  queue.acquiredImmediately();
  vi.advanceTimersByTime(6_000);
  add("later");
  vi.advanceTimersByTime(500);
  expect(rejected).toEqual(["burst"]);
});
