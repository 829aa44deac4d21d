import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createLog } from "../../../src/observe/log.js";
import { type PeriodicFlush, startPeriodicFlush } from "../../../src/storage/periodic-flush.js";

/** A collection of facts. A test sets how many are pending. */
let pending: number;
let isFilling: boolean;
let flushes: number;
let store: () => Promise<void>;
let periodicFlush: PeriodicFlush;

beforeEach(() => {
  vi.useFakeTimers();
  pending = 0;
  isFilling = false;
  flushes = 0;
  store = async () => {};
  const flush = async () => {
    flushes += 1;
    await store();
    pending = 0;
  };
  const log = createLog("trace", { destination: { write: () => {} } });
  const collection = { what: "facts", flush, pending: () => pending, isFilling: () => isFilling };
  periodicFlush = startPeriodicFlush(collection, log);
});
afterEach(async () => {
  await periodicFlush.close();
  vi.useRealTimers();
});

const seconds = (count: number) => vi.advanceTimersByTimeAsync(count * 1_000);

describe("facts are stored periodically", () => {
  it("a few of them every two seconds", async () => {
    for (let interval = 0; interval < 5; interval++) {
      pending = 2_000;
      const before = flushes;
      await seconds(1.9);
      expect(flushes).toBe(before);
      await seconds(0.1);
      expect(flushes).toBe(before + 1);
    }
  });

  it("many of them less often: 1 ms later for each", async () => {
    pending = 10_000;
    await seconds(9.9);
    expect(flushes).toBe(0);
    await seconds(0.1);
    expect(flushes).toBe(1);
  });

  it("after two seconds, however many they are, if they take much memory", async () => {
    pending = 1_000_000;
    isFilling = true;
    await seconds(1.9);
    expect(flushes).toBe(0);
    await seconds(0.1);
    expect(flushes).toBe(1);
  });

  it("one flush at a time, and the pause begins when it has ended", async () => {
    let finish = () => {};
    store = () => new Promise((resolve) => (finish = resolve));
    await seconds(20);
    expect(flushes).toBe(1);
    finish();
    await seconds(1.9);
    expect(flushes).toBe(1);
    await seconds(0.5);
    expect(flushes).toBe(2);
    store = async () => {};
    finish();
  });

  it("again after a failure", async () => {
    pending = 1;
    store = () => Promise.reject(new Error("Postgres is away"));
    await seconds(2);
    expect([flushes, pending]).toEqual([1, 1]);
    store = async () => {};
    await seconds(2);
    expect([flushes, pending]).toEqual([2, 0]);
  });
});

it("close stores at once what is pending, also after the flush in flight", async () => {
  pending = 1;
  let finish = () => {};
  store = () => new Promise((resolve) => (finish = resolve));
  await seconds(2);
  const closed = periodicFlush.close();
  store = async () => {};
  finish();
  await closed;
  expect([flushes, pending]).toEqual([2, 0]);
  await seconds(60);
  expect(flushes).toBe(2);
});
