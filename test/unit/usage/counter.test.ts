import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { VerificationCode } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { createLog } from "../../../src/observe/log.js";
import { createVerificationCounter, type VerificationCounter } from "../../../src/usage/counter.js";
import type { CountBatch, CountRow } from "../../../src/usage/store.js";

/** Longer than the flush interval, shorter than twice that. */
const intervalMs = 3_000;
const { VALID, NOT_FOUND, DISABLED, EXPIRED, INSUFFICIENT_PERMISSIONS, FORBIDDEN, RATE_LIMITED, USAGE_EXCEEDED } =
  VerificationCode;

/** A store that records its batches. A test can make it fail or wait. */
let batches: CountBatch[];
let store: (batch: CountBatch) => Promise<void>;
let counter: VerificationCounter;
let logLines: string[];
let states: Map<string, { keyId: string; identityId: string | null; workspaceId: string }>;

beforeEach(() => {
  states = new Map();
  vi.useFakeTimers();
  batches = [];
  logLines = [];
  store = async () => {};
  const log = createLog("trace", { destination: { write: (line: string) => void logLines.push(line) } });
  counter = createVerificationCounter((batch) => {
    batches.push(structuredClone(batch));
    return store(batch);
  }, log);
});
afterEach(async () => {
  store = async () => {};
  await counter.close();
  vi.useRealTimers();
});

const nextBatch = () => vi.advanceTimersByTimeAsync(intervalMs);
/** The cached state of a key: the same object for the same key, until it changes. */
function keyOf(keyId: string, identityId: string | null = null, workspaceId = "ws_1") {
  const id = `${keyId} ${identityId} ${workspaceId}`;
  const state = states.get(id) ?? { keyId, identityId, workspaceId };
  states.set(id, state);
  return state;
}
const unreachable = () => Promise.reject(Object.assign(new Error("Postgres is away"), { code: "ECONNREFUSED" }));

/** The rows of all batches that were stored, each batch once, as the store does it. */
function stored(): CountRow[] {
  return [...new Map(batches.map((batch) => [batch.number, batch])).values()].flatMap(({ rows }) => rows);
}
const rowOf = (resourceId: string, tag = "") =>
  stored().find((row) => row.resourceId === resourceId && row.tag === tag);
const validOf = (resourceId: string, tag = "") =>
  stored()
    .filter((row) => row.resourceId === resourceId && row.tag === tag)
    .reduce((sum, { valid }) => sum + valid, 0);

describe("verifications are counted", () => {
  it("by key and result, and stored together after the flush interval", async () => {
    const codes = [VALID, VALID, VALID, DISABLED, EXPIRED, INSUFFICIENT_PERMISSIONS, RATE_LIMITED, USAGE_EXCEEDED];
    for (const code of codes) counter.count(keyOf("key_a"), code, []);
    counter.count(keyOf("key_b"), RATE_LIMITED, [], 7);
    await vi.advanceTimersByTimeAsync(500);
    expect(batches).toEqual([]);
    await nextBatch();
    expect(batches).toHaveLength(1);
    expect(rowOf("key_a")).toEqual({
      resourceId: "key_a",
      workspaceId: "ws_1",
      tag: "",
      valid: 3,
      rateLimited: 1,
      usageExceeded: 1,
      insufficientPermissions: 1,
      disabled: 1,
      expired: 1,
    });
    expect(rowOf("key_b")).toMatchObject({ valid: 0, rateLimited: 7 });
  });

  it("also for the identity of the key, which has one row for all its keys", async () => {
    counter.count(keyOf("key_a", "id_1"), VALID, []);
    counter.count(keyOf("key_b", "id_1"), VALID, []);
    counter.count(keyOf("key_b", "id_2"), VALID, []); // the key has got another identity
    await nextBatch();
    expect(["key_a", "key_b", "id_1", "id_2"].map((id) => validOf(id))).toEqual([1, 2, 2, 1]);
    expect(stored()).toHaveLength(4);
  });

  it("by tag, besides the total", async () => {
    counter.count(keyOf("key_a", "id_1"), VALID, ["path=/a", "region=eu"]);
    counter.count(keyOf("key_a", "id_1"), VALID, ["path=/a"]);
    counter.count(keyOf("key_a", "id_1"), DISABLED, []);
    await nextBatch();
    for (const id of ["key_a", "id_1"]) {
      expect(["", "path=/a", "region=eu"].map((tag) => validOf(id, tag))).toEqual([2, 2, 1]);
    }
  });

  it("in one row for a key whose state was read again after a change", async () => {
    for (const tag of ["a", "a", "b"]) counter.count({ ...keyOf("key_a", "id_1") }, VALID, [tag]);
    await nextBatch();
    for (const id of ["key_a", "id_1"]) {
      expect(["", "a", "b"].map((tag) => validOf(id, tag))).toEqual([3, 2, 1]);
    }
    expect(stored()).toHaveLength(6);
  });

  it("also while a flush is storing others of the same key", async () => {
    let finish = () => {};
    store = () => new Promise((resolve) => (finish = resolve));
    for (let key = 0; key < 1_000; key++) counter.count(keyOf(`key_${key}`, "id_1"), VALID, ["a"]);
    await vi.advanceTimersByTimeAsync(5 * intervalMs); // 1 ms for each row
    expect(batches).toHaveLength(1);
    for (let key = 0; key < 1_000; key++) counter.count(keyOf(`key_${key}`, "id_1"), VALID, ["a"]);
    store = async () => {};
    finish();
    await vi.advanceTimersByTimeAsync(5 * intervalMs);
    for (const id of ["key_0", "key_999"]) expect([validOf(id), validOf(id, "a")]).toEqual([2, 2]);
    expect([validOf("id_1"), validOf("id_1", "a")]).toEqual([2_000, 2_000]);
  });

  it("but not those of keys that do not exist", async () => {
    for (const code of [NOT_FOUND, FORBIDDEN, VerificationCode.UNSPECIFIED]) counter.count(keyOf("key_a"), code, ["a"]);
    await nextBatch();
    await counter.close();
    expect(batches).toEqual([]);
  });

  it("in batches of limited size, totals before tags, and each row once", async () => {
    for (let key = 0; key < 1_000; key++) counter.count(keyOf(`key_${key}`), VALID, ["a", "b"]);
    await nextBatch();
    expect(Math.max(...batches.map(({ rows }) => rows.length))).toBeLessThanOrEqual(500);
    expect(new Set(stored().map(({ resourceId, tag }) => `${resourceId} ${tag}`)).size).toBe(3_000);
    expect(
      stored()
        .slice(0, 1_000)
        .every(({ tag }) => tag === ""),
    ).toBe(true);
    const numbers = batches.map(({ number }) => number);
    expect(numbers).toEqual([...numbers].sort((one, other) => one - other));
    expect(new Set(numbers).size).toBe(batches.length);
    expect(new Set(batches.map(({ counterId }) => counterId)).size).toBe(1);
  });

  it("up to a maximum that the database can add up, whatever a client reports", async () => {
    for (let report = 0; report < 1_000; report++) counter.count(keyOf("key_a"), VALID, [], Number.MAX_SAFE_INTEGER);
    await nextBatch();
    expect(validOf("key_a")).toBe(1e14);
  });
});

describe("retry: each count is stored once, also if the store fails", () => {
  it("a batch whose outcome is unknown is sent again unchanged, before later counts", async () => {
    counter.count(keyOf("key_a"), VALID, []);
    store = unreachable;
    await nextBatch();
    counter.count(keyOf("key_a"), VALID, []);
    counter.count(keyOf("key_b"), VALID, []);
    await vi.advanceTimersByTimeAsync(5 * intervalMs);
    expect(batches.length).toBeGreaterThan(2);
    expect(new Set(batches.map((batch) => JSON.stringify(batch))).size).toBe(1);
    expect(logLines).toEqual([expect.stringContaining("cannot store counts of verifications")]);
    store = async () => {};
    await nextBatch();
    expect([validOf("key_a"), validOf("key_b")]).toEqual([2, 1]);
    expect(logLines.slice(1)).toEqual([expect.stringContaining("are stored again")]);
  });

  it("no later batch is sent while one is in flight", async () => {
    let finish = () => {};
    store = () => new Promise((resolve) => (finish = resolve));
    counter.count(keyOf("key_a"), VALID, []);
    await nextBatch();
    counter.count(keyOf("key_a"), VALID, []);
    await vi.advanceTimersByTimeAsync(5 * intervalMs);
    expect(batches).toHaveLength(1);
    store = async () => {};
    finish();
    await nextBatch();
    expect(validOf("key_a")).toBe(2);
  });

  it("a batch that the database refuses although it works is dropped, so that it does not block others", async () => {
    store = () => Promise.reject(Object.assign(new Error("invalid input syntax"), { code: "22P02" }));
    counter.count(keyOf("key_a"), VALID, []);
    await nextBatch();
    expect(logLines).toEqual([expect.stringContaining("refuses counts of verifications")]);
    store = async () => {};
    counter.count(keyOf("key_b"), VALID, []);
    await nextBatch();
    expect(batches.at(-1)?.rows.map(({ resourceId }) => resourceId)).toEqual(["key_b"]);
  });
});

describe("the memory of counts is bounded", () => {
  const warnings = () => logLines.filter((line) => line.includes("not counting some")).length;

  it("a workspace with too many keys and tags loses counts, which is logged once; other workspaces lose none", async () => {
    store = unreachable;
    const tags = Array.from({ length: 10 }, (_, index) => `${index} ${"x".repeat(120)}`);
    for (let key = 0; key < 10_000; key++) counter.count(keyOf(`key_${key}`, `id_${key}`, "ws_large"), VALID, tags);
    for (let key = 0; key < 1_000; key++) counter.count(keyOf(`other_${key}`, null, "ws_other"), VALID, ["a"]);
    expect(warnings()).toBe(1);
    await vi.advanceTimersByTimeAsync(3 * intervalMs);
    for (let key = 0; key < 10_000; key++) counter.count(keyOf(`key_${key}`, `id_${key}`, "ws_large"), VALID, tags);
    for (let key = 0; key < 1_000; key++) counter.count(keyOf(`other_${key}`, null, "ws_other"), VALID, ["a"]);
    store = async () => {};
    await vi.advanceTimersByTimeAsync(10 * intervalMs);
    const rows = stored();
    const bytes = rows.reduce((sum, { tag }) => sum + 300 + 2 * tag.length, 0);
    expect(bytes).toBeLessThanOrEqual(32 * 2 ** 20);
    const others = rows.filter(({ workspaceId }) => workspaceId === "ws_other");
    expect(others.reduce((sum, { valid }) => sum + valid, 0)).toBe(2 * 2 * 1_000);
    expect(rows.length).toBeGreaterThan(20_000);
  });

  it("after a flush, there is memory again, and the next overflow is logged again", async () => {
    const tags = Array.from({ length: 100 }, (_, index) => `${index} ${"x".repeat(1_000)}`);
    const fill = (round: number) => {
      for (let key = 0; key < 100; key++) counter.count(keyOf(`key_${round}_${key}`), VALID, tags);
    };
    fill(1);
    expect(warnings()).toBe(1);
    await nextBatch();
    const before = stored().length;
    fill(2);
    await nextBatch();
    expect(stored().length).toBe(2 * before);
    expect(warnings()).toBe(2);
  });

  it("a key that is verified all the time takes the memory of one row, and one for each tag", async () => {
    for (let times = 0; times < 100_000; times++) counter.count(keyOf("key_a", "id_1"), VALID, ["a"]);
    await nextBatch();
    expect(warnings()).toBe(0);
    expect(["key_a", "id_1"].map((id) => [validOf(id), validOf(id, "a")])).toEqual([
      [100_000, 100_000],
      [100_000, 100_000],
    ]);
  });

  it("a key has at most 100 tags", async () => {
    for (let tag = 0; tag < 1_000; tag++) counter.count(keyOf("key_a"), VALID, [`tag ${tag}`]);
    await nextBatch();
    expect(validOf("key_a")).toBe(1_000);
    expect(stored()).toHaveLength(101);
  });
});

describe("close (graceful shutdown)", () => {
  it("stores all counts, also those of a batch that could not be stored before", async () => {
    store = unreachable;
    counter.count(keyOf("key_a"), VALID, []);
    await nextBatch();
    counter.count(keyOf("key_b"), VALID, []);
    store = async () => {};
    await counter.close();
    expect([validOf("key_a"), validOf("key_b")]).toEqual([1, 1]);
  });

  it("resolves even if the store fails", async () => {
    store = unreachable;
    counter.count(keyOf("key_a"), VALID, []);
    await expect(counter.close()).resolves.toBeUndefined();
  });
});
