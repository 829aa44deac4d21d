import { describe, expect, it } from "vitest";
import { createRandom } from "../../verification/faults/random.js";
import { failingsOf, judge, type MemoryName } from "./judge.js";

/** Ten minutes, a sample every five seconds, with noise of this many bytes on every sample. */
function series(
  bytesPerCall: number,
  { noise = 100_000, warmUp = 0, seed = 1, count = 120, callsPerSecond = 300, drift = 0 } = {},
) {
  const random = createRandom(seed);
  return Array.from({ length: count }, (_, index) => {
    const calls = index * 5 * callsPerSecond;
    const swing = random.between(-noise, noise);
    const warming = warmUp * Math.min(1, index / (count / 3)) + (drift * index) / count;
    const bytes = 60_000_000 + warming + swing + bytesPerCall * calls;
    return { calls, heapBytes: bytes, externalBytes: bytes, rssBytes: bytes };
  });
}

const seeds = Array.from({ length: 50 }, (_, index) => index + 1);
const kinds = (memory: MemoryName, bytesPerCall: number, options = {}) =>
  new Set(seeds.map((seed) => judge(memory, series(bytesPerCall, { ...options, seed })).kind));

describe.each(["heap", "external"] as const)("the judge of memory that is known exactly: %s", (memory) => {
  it("finds a leak of 1 KiB in 100 calls, and calls flat what has none", () => {
    expect(kinds(memory, 10.24)).toEqual(new Set(["growing"]));
    expect(kinds(memory, 0)).toEqual(new Set(["flat"]));
  });

  it("does not mistake caches that fill at first for a leak", () => {
    expect(kinds(memory, 0, { warmUp: 20_000_000 })).toEqual(new Set(["flat"]));
  });

  it("takes nothing for flat in whose noise such a leak could hide, nor what was seldom looked at", () => {
    expect(kinds(memory, 0, { noise: 10_000_000 })).toEqual(new Set(["unclear"]));
    expect(judge(memory, series(0, { count: 4 })).kind).toBe("unclear");
    expect(judge(memory, []).kind).toBe("unclear");
  });

  it("takes what shrinks for flat", () => {
    expect(kinds(memory, -10)).toEqual(new Set(["flat"]));
  });
});

describe("the judge of resident memory", () => {
  const noise = 4 * 2 ** 20;

  it.each([75, 300, 1_000])("finds a leak of 1 KiB a call in ten minutes of %i calls a second", (callsPerSecond) => {
    expect(kinds("resident", 1_024, { noise, callsPerSecond })).toEqual(new Set(["growing"]));
    expect(kinds("resident", 0, { noise, callsPerSecond })).not.toContain("growing");
  });

  it("does not fail what gains some MiB by itself, in many calls or in few", () => {
    const drift = 12 * 2 ** 20;
    expect(kinds("resident", 0, { noise, drift })).not.toContain("growing");
    expect(kinds("resident", 0, { noise, drift, count: 24 })).not.toContain("growing");
    expect(kinds("resident", 0, { noise: 100_000, drift, count: 24 })).not.toContain("growing");
  });

  it("does not call flat a round so short that a leak would not show", () => {
    expect(kinds("resident", 0, { count: 6 })).toEqual(new Set(["unclear"]));
  });
});

it("a round fails by what grows, and by what is unclear where it is known exactly", () => {
  const verdict = { bytesPerCall: 700, uncertainty: 10 };
  const told = (memory: MemoryName) =>
    (["growing", "unclear", "flat"] as const).map((kind) => failingsOf(memory, { kind, ...verdict }).join());
  expect(told("external")).toEqual([
    "what is outside of the heap grows by 700.0 bytes a call",
    "whether what is outside of the heap grows is unclear: run it longer",
    "",
  ]);
  expect(told("resident")).toEqual(["resident memory grows by 700.0 bytes a call", "", ""]);
});
