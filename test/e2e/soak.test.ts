import { describe, expect, test } from "vitest";
import { toText } from "../robustness/soak/report.js";
import { runRound } from "../robustness/soak/round.js";

/** The run is too short to show that memory does not grow. */
const memoryFailing = /^(whether )?(the heap|external memory|resident memory) grows/;
const noLeak = { bytes: 0, inBuffers: false };

describe("a short soak", () => {
  test("with faults answers every call correctly, and releases everything at the end", async () => {
    const result = await runRound({ seconds: 20, seed: 1, faults: true, leak: noLeak, fill: false });
    expect(
      result.failings.filter((failing) => !memoryFailing.test(failing)),
      toText(result),
    ).toEqual([]);
    expect(result.tally.calls).toBeGreaterThan(200);
    expect(result.faults).toBeGreaterThan(0);
  }, 90_000);

  test.each([
    ["objects", "heap", false],
    ["Buffers", "external", true],
  ] as const)(
    "detects a service that leaks %s",
    async (_what, memory, inBuffers) => {
      const leak = { bytes: 4 * 1024 * 1024, inBuffers };
      const result = await runRound({ seconds: 16, seed: 1, faults: false, leak, fill: false });
      expect(result.memory[memory].kind, toText(result)).toBe("growing");
      expect(result.memory[memory].bytesPerCall).toBeGreaterThan(5_000);
    },
    90_000,
  );
});
