import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createLastUsed, type LastUsed } from "../../../src/keys/last-used.js";
import { createLog } from "../../../src/observe/log.js";

/** Longer than the flush interval, shorter than twice that. */
const intervalMs = 3_000;
const at = (seconds: number) => 1_800_000_000_000 + seconds * 1_000;

/** A store that records its batches. A test can make it fail or wait. */
let batches: Map<string, number>[];
let store: (uses: ReadonlyMap<string, number>) => Promise<readonly string[]>;
let lastUsed: LastUsed;
let logLines: string[];
/** The cached states of keys by id. */
let states: Map<string, { keyId: string }>;

beforeEach(() => {
  vi.useFakeTimers();
  states = new Map();
  batches = [];
  logLines = [];
  store = async () => [];
  const log = createLog("trace", { destination: { write: (line: string) => void logLines.push(line) } });
  lastUsed = createLastUsed((uses) => {
    batches.push(new Map(uses));
    return store(uses);
  }, log);
});
afterEach(async () => {
  store = async () => [];
  await lastUsed.close();
  vi.useRealTimers();
});

function stateOf(keyId: string) {
  const state = states.get(keyId) ?? { keyId };
  states.set(keyId, state);
  return state;
}

/** The stored times after all batches, in order. */
const storedTimes = () => new Map(batches.flatMap((batch) => [...batch]));
const nextBatch = () => vi.advanceTimersByTimeAsync(intervalMs);

describe("last-used times are stored in batches", () => {
  it("nothing is stored before the flush interval, then all in one batch", async () => {
    for (let i = 0; i < 100; i++) lastUsed.record(stateOf(`key_${i}`), at(i));
    await vi.advanceTimersByTimeAsync(500);
    expect(batches).toEqual([]);
    await nextBatch();
    expect(batches.map(({ size }) => size)).toEqual([100]);
  });

  it("only the last time of a key is stored, however often it is used", async () => {
    for (let i = 0; i < 1_000; i++) lastUsed.record(stateOf("key_a"), at(i));
    await nextBatch();
    expect(batches).toEqual([new Map([["key_a", at(999)]])]);
  });

  it("a key whose state was read again after a change has one time, the last", async () => {
    lastUsed.record({ keyId: "key_a" }, at(2));
    lastUsed.record({ keyId: "key_a" }, at(3));
    lastUsed.record({ keyId: "key_a" }, at(1));
    await nextBatch();
    expect(batches).toEqual([new Map([["key_a", at(3)]])]);
  });

  it("keys that were locked are stored with the next batch, with a later time if they were used since", async () => {
    for (const key of ["key_a", "key_b", "key_c"]) lastUsed.record(stateOf(key), at(1));
    store = async () => ["key_a", "key_b"];
    await nextBatch();
    lastUsed.record(stateOf("key_b"), at(2));
    store = async () => [];
    await nextBatch();
    await nextBatch();
    expect(batches.slice(1)).toEqual([
      new Map([
        ["key_a", at(1)],
        ["key_b", at(2)],
      ]),
    ]);
  });

  it("nothing is stored if no key is used", async () => {
    await vi.advanceTimersByTimeAsync(10 * intervalMs);
    await lastUsed.close();
    expect(batches).toEqual([]);
  });

  it("times that are recorded while a batch is in flight wait for the next flush interval", async () => {
    let used = 0;
    store = async () => {
      used += 1;
      if (used < 1_000) lastUsed.record(stateOf("key_a"), at(used));
      return [];
    };
    lastUsed.record(stateOf("key_a"), at(0));
    await nextBatch();
    expect(batches.length).toBeLessThanOrEqual(2);
  });

  it("more keys than the maximum batch size are stored in several statements, each key once", async () => {
    for (let i = 0; i < 6_000; i++) lastUsed.record(stateOf(`key_${i}`), at(i));
    await vi.advanceTimersByTimeAsync(7_000); // 1 ms for each
    expect(batches.length).toBeGreaterThan(1);
    expect(batches.reduce((sum, { size }) => sum + size, 0)).toBe(6_000);
    expect(storedTimes().size).toBe(6_000);
  });

  it("with many keys in use, each is stored less often than every two seconds", async () => {
    for (let second = 0; second < 30; second++) {
      for (let i = 0; i < 5_000; i++) lastUsed.record(stateOf(`key_${i}`), at(second));
      await vi.advanceTimersByTimeAsync(1_000);
    }
    const writes = batches.reduce((sum, { size }) => sum + size, 0);
    expect(writes).toBeGreaterThanOrEqual(20_000);
    expect(writes).toBeLessThanOrEqual(30_000);
  });

  it("an earlier time that is recorded later never replaces a later one", async () => {
    lastUsed.record(stateOf("key_a"), at(10));
    lastUsed.record(stateOf("key_a"), at(9));
    await nextBatch();
    expect(batches).toEqual([new Map([["key_a", at(10)]])]);
  });

  it("no second batch is sent while one is in flight, however slow the store is", async () => {
    let finish = () => {};
    store = () => new Promise((resolve) => (finish = () => resolve([])));
    lastUsed.record(stateOf("key_a"), at(0));
    await nextBatch();
    lastUsed.record(stateOf("key_b"), at(1));
    await vi.advanceTimersByTimeAsync(10 * intervalMs);
    expect(batches).toHaveLength(1);
    store = async () => [];
    finish();
    await nextBatch();
    expect(storedTimes()).toEqual(
      new Map([
        ["key_a", at(0)],
        ["key_b", at(1)],
      ]),
    );
  });
});

describe("retry: no time is lost if the store fails", () => {
  const failing = () => Promise.reject(new Error("Postgres is away"));

  it("the batch is retried until it is stored; the begin and the end of the outage are logged once", async () => {
    store = failing;
    lastUsed.record(stateOf("key_a"), at(1));
    lastUsed.record(stateOf("key_b"), at(2));
    await vi.advanceTimersByTimeAsync(5 * intervalMs);
    const failures = batches.length;
    expect(failures).toBeGreaterThan(1);
    expect(logLines).toEqual([expect.stringContaining("Postgres is away")]);
    store = async () => [];
    await nextBatch();
    expect(batches.at(-1)).toEqual(
      new Map([
        ["key_a", at(1)],
        ["key_b", at(2)],
      ]),
    );
    await nextBatch();
    expect(batches).toHaveLength(failures + 1);
    expect(logLines.slice(1)).toEqual([expect.stringContaining("are stored again")]);
  });

  it("a later time replaces one that could not be stored", async () => {
    store = async (uses) => {
      lastUsed.record(stateOf("key_a"), at(5));
      return uses.size > 0 ? failing() : [];
    };
    lastUsed.record(stateOf("key_a"), at(1));
    lastUsed.record(stateOf("key_b"), at(2));
    await nextBatch();
    store = async () => [];
    await nextBatch();
    expect(batches.at(-1)).toEqual(
      new Map([
        ["key_a", at(5)],
        ["key_b", at(2)],
      ]),
    );
  });

  it("close stores the times that could not be stored before", async () => {
    store = failing;
    lastUsed.record(stateOf("key_a"), at(1));
    await nextBatch();
    store = async () => [];
    await lastUsed.close();
    expect(storedTimes()).toEqual(new Map([["key_a", at(1)]]));
  });
});

describe("the number of pending times is bounded", () => {
  const warned = () => logLines.filter((line) => line.includes("dropping")).length;
  const newStates = (name: string, count: number) =>
    Array.from({ length: count }, (_, number) => ({ keyId: `${name}_${number}` }));
  const use = (keys: readonly { keyId: string }[], second: number) => {
    for (const key of keys) lastUsed.record(key, at(second));
  };

  it("times of further keys are dropped, which is logged once; those of pending keys are still updated", async () => {
    store = () => Promise.reject(new Error("Postgres is away"));
    const keys = newStates("key", 150_000);
    use(keys, 0);
    await vi.advanceTimersByTimeAsync(3 * intervalMs);
    use(keys.slice(100_000), 1);
    use(keys.slice(0, 10), 2);
    expect(warned()).toBe(1);
    batches = [];
    store = async () => [];
    await nextBatch();
    const stored = storedTimes();
    expect(stored.size).toBe(100_000);
    expect(stored.get("key_0")).toEqual(at(2));
    expect(stored.get("key_99999")).toEqual(at(0));
  });

  it("after a flush, new keys are accepted again, and the next overflow is logged again", async () => {
    use(newStates("early", 100_001), 0);
    expect(warned()).toBe(1);
    await nextBatch();
    use(newStates("late", 100_000), 1);
    expect(warned()).toBe(1);
    use(newStates("dropped", 2), 1);
    expect(warned()).toBe(2);
    batches = [];
    await nextBatch();
    expect(storedTimes().size).toBe(100_000);
  });
});

describe("close (graceful shutdown)", () => {
  it("stores all pending times, also those that are recorded while a batch is in flight", async () => {
    let finish = () => {};
    store = () => new Promise((resolve) => (finish = () => resolve([])));
    lastUsed.record(stateOf("key_a"), at(0));
    await nextBatch();
    lastUsed.record(stateOf("key_b"), at(1));
    const closed = lastUsed.close();
    store = async () => [];
    finish();
    await closed;
    expect(storedTimes()).toEqual(
      new Map([
        ["key_a", at(0)],
        ["key_b", at(1)],
      ]),
    );
  });

  it("resolves even if the store fails", async () => {
    store = () => Promise.reject(new Error("Postgres is away"));
    lastUsed.record(stateOf("key_a"), at(1));
    await expect(lastUsed.close()).resolves.toBeUndefined();
  });
});
