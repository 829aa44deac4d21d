import { describe, expect, it } from "vitest";
import { createRandom } from "../../verification/faults/random.js";
import { classifyTrend, failingsOf, type MemoryName } from "./trend.js";

/** Ten minutes, a sample every five seconds, with noise of this many bytes on every sample. */
function series(
  bytesPerCall: number,
  { noise = 100_000, warmUp = 0, seed = 1, count = 120, callsPerSecond = 300, drift = 0 } = {},
) {
  const random = createRandom(seed);
  return Array.from({ length: count }, (_, index) => {
    const calls = index * 5 * callsPerSecond;
    const deviation = random.between(-noise, noise);
    const warming = warmUp * Math.min(1, index / (count / 3)) + (drift * index) / count;
    const bytes = 60_000_000 + warming + deviation + bytesPerCall * calls;
    return { calls, heapBytes: bytes, externalBytes: bytes, rssBytes: bytes };
  });
}

const seeds = Array.from({ length: 50 }, (_, index) => index + 1);
const trends = (memory: MemoryName, bytesPerCall: number, options = {}) =>
  new Set(seeds.map((seed) => classifyTrend(memory, series(bytesPerCall, { ...options, seed })).kind));

describe.each(["heap", "external"] as const)("leak detection in exactly measured memory: %s", (memory) => {
  it("detects a leak of 1 KiB in 100 calls, and reports flat without a leak", () => {
    expect(trends(memory, 10.24)).toEqual(new Set(["growing"]));
    expect(trends(memory, 0)).toEqual(new Set(["flat"]));
  });

  it("does not report caches that fill at first as a leak", () => {
    expect(trends(memory, 0, { warmUp: 20_000_000 })).toEqual(new Set(["flat"]));
  });

  it("reports unclear if the noise could hide such a leak, or with too few samples", () => {
    expect(trends(memory, 0, { noise: 10_000_000 })).toEqual(new Set(["unclear"]));
    expect(classifyTrend(memory, series(0, { count: 4 })).kind).toBe("unclear");
    expect(classifyTrend(memory, []).kind).toBe("unclear");
  });

  it("reports shrinking memory as flat", () => {
    expect(trends(memory, -10)).toEqual(new Set(["flat"]));
  });
});

describe("leak detection in resident memory", () => {
  const noise = 4 * 2 ** 20;

  it.each([75, 300, 1_000])("detects a leak of 1 KiB a call in ten minutes of %i calls a second", (callsPerSecond) => {
    expect(trends("resident", 1_024, { noise, callsPerSecond })).toEqual(new Set(["growing"]));
    expect(trends("resident", 0, { noise, callsPerSecond })).not.toContain("growing");
  });

  it("does not report a drift of some MiB as a leak, in many calls or in few", () => {
    const drift = 12 * 2 ** 20;
    expect(trends("resident", 0, { noise, drift })).not.toContain("growing");
    expect(trends("resident", 0, { noise, drift, count: 24 })).not.toContain("growing");
    expect(trends("resident", 0, { noise: 100_000, drift, count: 24 })).not.toContain("growing");
  });

  it("does not report flat after a round too short to show a leak", () => {
    expect(trends("resident", 0, { count: 6 })).toEqual(new Set(["unclear"]));
  });
});

it("a round fails if memory grows, and if exactly measured memory is unclear", () => {
  const trend = { bytesPerCall: 700, uncertainty: 10 };
  const failings = (memory: MemoryName) =>
    (["growing", "unclear", "flat"] as const).map((kind) => failingsOf(memory, { kind, ...trend }).join());
  expect(failings("external")).toEqual([
    "external memory grows by 700.0 bytes a call",
    "whether external memory grows is unclear: run the soak longer",
    "",
  ]);
  expect(failings("resident")).toEqual(["resident memory grows by 700.0 bytes a call", "", ""]);
});
