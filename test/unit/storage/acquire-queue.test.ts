import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createAcquireQueue } from "../../../src/storage/postgres/acquire-queue.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A room, and what became of those who came. */
function openRoom() {
  const room = createAcquireQueue<string>({ targetMs: 100, burstMs: 3_000, intervalMs: 1_000 });
  const refused: string[] = [];
  const names = new Map<object, string>();
  const enter = (who: string, patient = false) => {
    const waiter = patient ? { onAcquired() {} } : { onAcquired() {}, onRejected: () => void refused.push(who) };
    names.set(waiter, who);
    room.add(waiter);
  };
  const next = () => names.get(room.next() ?? {});
  return { room, refused, enter, next };
}

test("who waits has the next turn, in the order of coming", () => {
  const { enter, next } = openRoom();
  for (const who of ["first", "second"]) enter(who);
  expect([next(), next(), next()]).toEqual(["first", "second", undefined]);
});

test("a burst is waited out: nobody of it is refused while it gets shorter", () => {
  const { room, enter, next, refused } = openRoom();
  for (let who = 0; who < 290; who++) enter(`${who}`);
  while (room.size > 0) {
    vi.advanceTimersByTime(10);
    next();
  }
  expect(refused).toEqual([]);
});

test("a burst that takes too long is cut in the end, and who comes while it stands pushes two out", () => {
  const { enter, next, refused } = openRoom();
  for (let who = 0; who < 40; who++) enter(`${who}`);
  for (let turns = 0; turns < 30; turns++) {
    vi.advanceTimersByTime(100);
    next();
  }
  enter("later");
  expect(refused).toEqual(["30", "31"]);
  vi.advanceTimersByTime(200);
  expect(refused).toHaveLength(11);
});

test("where nothing moves nobody waits for much more than a second, and who comes later is refused soon", () => {
  const { enter, refused } = openRoom();
  enter("first");
  vi.advanceTimersByTime(1_000);
  expect(refused).toEqual([]);
  vi.advanceTimersByTime(100);
  expect(refused).toEqual(["first"]);
  enter("later");
  vi.advanceTimersByTime(200);
  expect(refused).toEqual(["first", "later"]);
});

test("a queue to which too many come is short soon: who is served then has not waited for longer than the target", () => {
  const { enter, next, refused } = openRoom();
  const waits: number[] = [];
  for (let ms = 0; ms < 4_000; ms += 10) {
    enter(`${ms}`);
    enter(`${ms}`);
    vi.advanceTimersByTime(10);
    if (ms > 2_500) waits.push(ms + 10 - Number(next()));
    else next();
  }
  expect(Math.max(...waits)).toBeLessThanOrEqual(100);
  expect(refused.length).toBeGreaterThan(300);
});

test("who has all the time is never refused", () => {
  const { enter, next, refused } = openRoom();
  enter("impatient");
  vi.advanceTimersByTime(2_000);
  enter("patient", true);
  vi.advanceTimersByTime(20_000);
  expect(refused).toEqual(["impatient"]);
  expect(next()).toBe("patient");
});

test("a queue that has been empty for a while is a new one", () => {
  const { room, enter, refused } = openRoom();
  enter("burst");
  vi.advanceTimersByTime(3_000);
  room.acquiredImmediately();
  vi.advanceTimersByTime(6_000);
  enter("later");
  vi.advanceTimersByTime(500);
  expect(refused).toEqual(["burst"]);
});
