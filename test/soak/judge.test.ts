import { describe, expect, it } from "vitest";
import { createRandom } from "../faults/random.js";
import { judgeHeap } from "./judge.js";

/** Ten minutes at 300 calls a second, a sample every five seconds, with noise of this many bytes on every sample. */
function series(bytesPerCall: number, { noise = 100_000, warmUp = 0, seed = 1, count = 120 } = {}) {
  const random = createRandom(seed);
  return Array.from({ length: count }, (_, index) => {
    const calls = index * 1_500;
    const swing = random.between(-noise, noise);
    const warming = warmUp * Math.min(1, index / (count / 3));
    return { calls, heapBytes: 60_000_000 + warming + swing + bytesPerCall * calls };
  });
}

const seeds = Array.from({ length: 50 }, (_, index) => index + 1);
const kinds = (bytesPerCall: number, options = {}) =>
  new Set(seeds.map((seed) => judgeHeap(series(bytesPerCall, { ...options, seed })).kind));

describe("the judge of the heap", () => {
  it("finds a leak of 1 KiB in 100 calls, and calls a heap flat that has none", () => {
    expect(kinds(10.24)).toEqual(new Set(["growing"]));
    expect(kinds(0)).toEqual(new Set(["flat"]));
  });

  it("does not mistake caches that fill at first for a leak", () => {
    expect(kinds(0, { warmUp: 20_000_000 })).toEqual(new Set(["flat"]));
  });

  it("takes no heap for flat in whose noise such a leak could hide, nor one that was seldom looked at", () => {
    expect(kinds(0, { noise: 10_000_000 })).toEqual(new Set(["unclear"]));
    expect(judgeHeap(series(0, { count: 4 })).kind).toBe("unclear");
    expect(judgeHeap([]).kind).toBe("unclear");
  });

  it("takes a shrinking heap for flat", () => {
    expect(kinds(-10)).toEqual(new Set(["flat"]));
  });
});
