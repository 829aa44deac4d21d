import { describe, expect, test } from "vitest";
import { toText } from "../soak/report.js";
import { runRound } from "../soak/round.js";

/** Too short to say of a heap that it is flat. */
const ofTheHeap = /^(the heap grows|whether the heap grows)/;

describe("a short soak", () => {
  test("with faults answers every call as it should, and comes to rest without anything left over", async () => {
    const result = await runRound({ seconds: 20, seed: 1, faults: true, leakBytes: 0, fill: false });
    expect(
      result.failings.filter((one) => !ofTheHeap.test(one)),
      toText(result),
    ).toEqual([]);
    expect(result.tally.calls).toBeGreaterThan(200);
    expect(result.faults).toBeGreaterThan(0);
  }, 90_000);

  test("of a service that leaks finds it", async () => {
    const result = await runRound({ seconds: 16, seed: 1, faults: false, leakBytes: 4 * 1024 * 1024, fill: false });
    expect(result.heap.kind, toText(result)).toBe("growing");
    expect(result.heap.bytesPerCall).toBeGreaterThan(5_000);
  }, 90_000);
});
