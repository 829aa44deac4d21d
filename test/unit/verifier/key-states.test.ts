import { create } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { VerificationCode } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { CachedKeySchema } from "../../../gen/latchkey/v1/verifier_service_pb.js";
import { createKeyStates } from "../../../src/verifier/key-states.js";

function cachedKey(keyId: string, { name = "", dependsOn = [keyId], validForMs }: Partial<Fields> = {}) {
  const result = { valid: true, code: VerificationCode.VALID, keyId, name };
  return create(CachedKeySchema, { result, dependsOn, ...(validForMs !== undefined && { validForMs }) });
}

interface Fields {
  readonly name: string;
  readonly dependsOn: string[];
  readonly validForMs: bigint;
}

/** When the states were requested. */
const requestedAt = { monotonic: 1_000, wall: 1_000_000 };

const megabyte = 2 ** 20;

describe("the key states of a stream", () => {
  it("are removed when a row that they depend on is invalidated, and no others are", () => {
    const states = createKeyStates(megabyte);
    states.add("a", cachedKey("key_a", { dependsOn: ["key_a", "id_1"] }), requestedAt);
    states.add("b", cachedKey("key_b", { dependsOn: ["key_b", "id_1"] }), requestedAt);
    states.add("c", cachedKey("key_c", { dependsOn: ["key_c", "id_2"] }), requestedAt);
    states.invalidate(["key_a", "key_unknown"]);
    expect(["a", "b", "c"].map((hash) => states.get(hash) !== undefined)).toEqual([false, true, true]);
    states.invalidate(["id_1"]);
    expect(["a", "b", "c"].map((hash) => states.get(hash) !== undefined)).toEqual([false, false, true]);
    states.clear();
    expect(states.size).toBe(0);
  });

  it("are still invalidated after they were received again", () => {
    const states = createKeyStates(megabyte);
    states.add("a", cachedKey("key_a"), requestedAt);
    states.add("a", cachedKey("key_a", { name: "renamed" }), requestedAt);
    states.invalidate(["key_a"]);
    expect(states.get("a")).toBeUndefined();
  });

  it("take a bounded memory: the least recently used ones are removed", () => {
    const states = createKeyStates(100_000);
    for (let key = 0; key < 1_000; key++) {
      states.add(`hash ${key}`, cachedKey(`key_${key}`), requestedAt);
      states.get("hash 0");
    }
    expect(states.size).toBeGreaterThan(10);
    expect(states.size).toBeLessThanOrEqual(100);
    expect(states.get("hash 0")).toBeDefined();
    expect(states.get("hash 1")).toBeUndefined();
    expect(states.get("hash 999")).toBeDefined();
  });

  it("count as used when they are used for the first time after a report", () => {
    const states = createKeyStates(100_000);
    const fill = (from: number) => {
      for (let key = from; key < from + 60; key++) states.add(`hash ${key}`, cachedKey(`key_${key}`), requestedAt);
    };
    fill(0);
    const state = states.get("hash 0");
    for (let report = 1; report <= 5; report++) {
      state?.uses.byCode.clear();
      expect(states.get("hash 0")).toBe(state);
      state?.uses.byCode.set("VALID", report);
      fill(report * 100);
    }
    expect(states.get("hash 0")).toBe(state);
    expect(states.get("hash 1")).toBeUndefined();
  });

  it("are limited by their size, and one that is larger than the limit is not kept", () => {
    const states = createKeyStates(100_000);
    for (let key = 0; key < 100; key++)
      states.add(`${key}`, cachedKey(`key_${key}`, { name: "n".repeat(4_000) }), requestedAt);
    expect(states.size).toBeGreaterThan(0);
    expect(states.size).toBeLessThanOrEqual(100_000 / 24_000);
    states.add("large", cachedKey("key_large", { name: "n".repeat(100_000) }), requestedAt);
    expect(states.get("large")).toBeUndefined();
    states.invalidate(["key_large"]);
  });

  it("of a key with an expiry are usable for five sixths of the time, counted from the request", () => {
    const states = createKeyStates(megabyte);
    states.add("a", cachedKey("key_a", { validForMs: 600n }), requestedAt);
    expect(states.get("a")?.usableUntil).toEqual({ monotonic: 1_500, wall: 1_000_500 });
    states.add("b", cachedKey("key_b"), requestedAt);
    expect(states.get("b")?.usableUntil.monotonic).toBe(Number.POSITIVE_INFINITY);
  });

  it("say whether the service must be asked for each verification", () => {
    const states = createKeyStates(megabyte);
    states.add("a", cachedKey("key_a"), requestedAt);
    states.add("b", create(CachedKeySchema, { ...cachedKey("key_b"), verifyRemotely: true }), requestedAt);
    expect([states.get("a")?.verifyRemotely, states.get("b")?.verifyRemotely]).toEqual([false, true]);
  });

  it("without a result are not kept", () => {
    const states = createKeyStates(megabyte);
    states.add("a", create(CachedKeySchema, { dependsOn: ["key_a"] }), requestedAt);
    expect(states.size).toBe(0);
  });
});
