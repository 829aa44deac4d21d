import { pino } from "pino";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createLastUsed, type LastUsed } from "../../../src/keys/last-used.js";

/** Longer than the time between two batches, shorter than twice that. */
const intervalMs = 3_000;
const at = (seconds: number) => 1_800_000_000_000 + seconds * 1_000;

/** A store that keeps what it is given, and fails or waits if it is told to. */
let batches: Map<string, number>[];
let store: (uses: ReadonlyMap<string, number>) => Promise<readonly string[]>;
let lastUsed: LastUsed;
let warnings: string[];

beforeEach(() => {
  vi.useFakeTimers();
  batches = [];
  warnings = [];
  store = async () => [];
  const log = pino({ level: "trace" }, { write: (line: string) => void warnings.push(line) });
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

/** What the store holds once every batch has been written, in order. */
const held = () => new Map(batches.flatMap((batch) => [...batch]));
const nextBatch = () => vi.advanceTimersByTimeAsync(intervalMs);

describe("uses are gathered", () => {
  it("nothing is stored before its time, then all in one batch", async () => {
    for (let i = 0; i < 100; i++) lastUsed.record(`key_${i}`, at(i));
    await vi.advanceTimersByTimeAsync(500);
    expect(batches).toEqual([]);
    await nextBatch();
    expect(batches.map(({ size }) => size)).toEqual([100]);
  });

  it("of a key that is used often, one time is stored: the last", async () => {
    for (let i = 0; i < 1_000; i++) lastUsed.record("key_a", at(i));
    await nextBatch();
    expect(batches).toEqual([new Map([["key_a", at(999)]])]);
  });

  it("without uses nothing is stored", async () => {
    await vi.advanceTimersByTimeAsync(10 * intervalMs);
    await lastUsed.close();
    expect(batches).toEqual([]);
  });

  it("what is used while a batch is being stored waits for the next interval", async () => {
    let used = 0;
    store = async () => {
      used += 1;
      if (used < 1_000) lastUsed.record("key_a", at(used));
      return [];
    };
    lastUsed.record("key_a", at(0));
    await nextBatch();
    expect(batches.length).toBeLessThanOrEqual(2);
  });

  it("more than fit one statement are stored in several, each key once", async () => {
    for (let i = 0; i < 25_000; i++) lastUsed.record(`key_${i}`, at(i));
    await nextBatch();
    expect(batches.length).toBeGreaterThan(1);
    expect(batches.reduce((sum, { size }) => sum + size, 0)).toBe(25_000);
    expect(held().size).toBe(25_000);
  });

  it("a time is never set back by an earlier one that is recorded later", async () => {
    lastUsed.record("key_a", at(10));
    lastUsed.record("key_a", at(9));
    await nextBatch();
    expect(batches).toEqual([new Map([["key_a", at(10)]])]);
  });

  it("a slow store is not asked again before it has answered", async () => {
    let finish = () => {};
    store = () => new Promise((resolve) => (finish = () => resolve([])));
    lastUsed.record("key_a", at(0));
    await nextBatch();
    lastUsed.record("key_b", at(1));
    await vi.advanceTimersByTimeAsync(10 * intervalMs);
    expect(batches).toHaveLength(1);
    store = async () => [];
    finish();
    await nextBatch();
    expect(held()).toEqual(
      new Map([
        ["key_a", at(0)],
        ["key_b", at(1)],
      ]),
    );
  });
});

describe("a store that fails loses nothing", () => {
  const failing = () => Promise.reject(new Error("Postgres is away"));

  it("the batch is tried again until it is stored; the log says so once, and once that it is over", async () => {
    store = failing;
    lastUsed.record("key_a", at(1));
    lastUsed.record("key_b", at(2));
    await vi.advanceTimersByTimeAsync(5 * intervalMs);
    const failures = batches.length;
    expect(failures).toBeGreaterThan(1);
    expect(warnings).toEqual([expect.stringContaining("Postgres is away")]);
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
    expect(warnings.slice(1)).toEqual([expect.stringContaining("is stored again")]);
  });

  it("a later use has the last word over one that could not be stored", async () => {
    store = async (uses) => {
      lastUsed.record("key_a", at(5));
      return uses.size > 0 ? failing() : [];
    };
    lastUsed.record("key_a", at(1));
    lastUsed.record("key_b", at(2));
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

  it("a close stores what could not be stored before", async () => {
    store = failing;
    lastUsed.record("key_a", at(1));
    await nextBatch();
    store = async () => [];
    await lastUsed.close();
    expect(held()).toEqual(new Map([["key_a", at(1)]]));
  });
});

describe("what waits to be stored is bounded", () => {
  const warned = () => warnings.filter((line) => line.includes("dropping")).length;
  const use = (from: number, count: number, second: number) => {
    for (let i = from; i < from + count; i++) lastUsed.record(`key_${i}`, at(second));
  };

  it("keys beyond that are left out, which is said once; those that are known go on", async () => {
    store = () => Promise.reject(new Error("Postgres is away"));
    use(0, 150_000, 0);
    await vi.advanceTimersByTimeAsync(3 * intervalMs);
    use(100_000, 50_000, 1);
    use(0, 10, 2);
    expect(warned()).toBe(1);
    batches = [];
    store = async () => [];
    await nextBatch();
    expect(held().size).toBe(100_000);
    expect(held().get("key_0")).toEqual(at(2));
    expect(held().get("key_99999")).toEqual(at(0));
  });

  it("once it is stored there is room again, and the next time is said again", async () => {
    use(0, 100_001, 0);
    expect(warned()).toBe(1);
    await nextBatch();
    use(200_000, 100_000, 1);
    expect(warned()).toBe(1);
    use(300_000, 2, 1);
    expect(warned()).toBe(2);
    batches = [];
    await nextBatch();
    expect(held().size).toBe(100_000);
  });
});

describe("a close", () => {
  it("stores what is unstored, also what is used while a batch is under way", async () => {
    let finish = () => {};
    store = () => new Promise((resolve) => (finish = () => resolve([])));
    lastUsed.record("key_a", at(0));
    await nextBatch();
    lastUsed.record("key_b", at(1));
    const closed = lastUsed.close();
    store = async () => [];
    finish();
    await closed;
    expect(held()).toEqual(
      new Map([
        ["key_a", at(0)],
        ["key_b", at(1)],
      ]),
    );
  });

  it("ends although the store fails", async () => {
    store = () => Promise.reject(new Error("Postgres is away"));
    lastUsed.record("key_a", at(1));
    await expect(lastUsed.close()).resolves.toBeUndefined();
  });
});
