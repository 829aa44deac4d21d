import { describe, expect, it } from "vitest";
import { createOpenWindows } from "../../../src/limiter/open-windows.js";
import { createRandom } from "../../verification/faults/random.js";

const day = 86_400_000;

/** Durations from a second to 30 days, evenly on a logarithmic scale. */
const durationOf = (random: { between(low: number, high: number): number }) =>
  Math.round(2 ** random.between(Math.log2(1_000), Math.log2(30 * day)));

describe("the estimate of open windows", () => {
  it.each([1, 2, 3])("is never too low, whatever the durations and the times (seed %i)", (seed) => {
    const random = createRandom(seed);
    let time = random.between(0, 100 * day);
    const windows = createOpenWindows(() => time);
    let ends: number[] = [];
    let most = 0;
    for (let event = 0; event < 3_000; event++) {
      time += random.between(0, 1) < 0.05 ? durationOf(random) : random.between(0, 10_000);
      const duration = durationOf(random);
      windows.add("ws_1", duration);
      ends.push(time + duration);
      time += random.between(0, 1_000);
      ends = ends.filter((end) => end > time);
      most = Math.max(most, ends.length);
      expect(windows.count("ws_1")).toBeGreaterThanOrEqual(ends.length);
    }
    expect(most).toBeGreaterThan(100);
  });

  it.each([1_000, 60_000, 3_600_000, 1_234_567_890, 30 * day])(
    "is at most 4/3 of the open windows of %i ms",
    (duration) => {
      let time = 5;
      const windows = createOpenWindows(() => time);
      const perWindow = 1_000;
      for (let begun = 0; begun < 3 * perWindow; begun++) {
        windows.add("ws_1", duration);
        time += duration / perWindow;
      }
      expect(windows.count("ws_1")).toBeGreaterThanOrEqual(perWindow);
      expect(windows.count("ws_1")).toBeLessThanOrEqual((perWindow * 4) / 3 + 5);
      time += 1.4 * duration;
      expect(windows.count("ws_1")).toBe(0);
    },
  );

  it("is that of one workspace", () => {
    const windows = createOpenWindows(() => 0);
    windows.add("ws_1", 1_000);
    expect([windows.count("ws_1"), windows.count("ws_2")]).toEqual([1, 0]);
  });
});
