import { describe, expect, it } from "vitest";
import { built, installDesign } from "./designs.js";
import { faultsNamed } from "./injector.js";
import { makeFolder, openTestRounds } from "./test-rounds.js";

/** Moderate, because other tests run on the same machine. `npm run faults` uses higher rates. */
const load = { callsPerSecond: 100, verifiers: { count: 2, callsPerSecond: 2_000 } };

const rounds = openTestRounds();

describe("revocation is immediate in processes that verify keys themselves", () => {
  it("while they and their replicas fail", { timeout: 180_000 }, async () => {
    const faults = faultsNamed(
      "verifier frozen",
      "verifier suspended",
      "verifier cut off",
      "verifier cut off from one replica",
      "verifier stalled",
      "verifier delayed",
      "verifier answered late",
      "verifier restarted with other clocks",
      "replica killed",
      "replica frozen",
      "postgres stalled for one",
    );
    const state = await rounds.run(built, makeFolder(), 2, { seed: 1, seconds: 40, faults, ...load });
    rounds.expectSound(state, 1, 2, {
      callsPerSecondDuringFaults: 20,
      localPerSecondDuringFaults: 200,
      writesPerSecond: 3,
      delayedCallsPerSecond: 0,
      faults,
      minOfEachFault: 1,
    });
  });
});

describe("fault injection detects verifiers that break the revocation promise", () => {
  it.each([
    ["grant-from-arrival", faultsNamed("verifier answered late")],
    ["invalidation-after-grant", []],
    ["states-kept", faultsNamed("verifier cut off")],
    ["caller-unchecked", []],
    ["unnoticed-suspension", faultsNamed("verifier suspended")],
  ])("%s", { timeout: 180_000 }, async (design, faults) => {
    const folder = makeFolder();
    const state = await rounds.run(installDesign(design, folder), folder, 2, {
      ...load,
      seed: 1,
      seconds: 60,
      faults,
      shouldStop: ({ violationCount }) => violationCount > 0,
    });
    process.stdout.write(`verifier faults: ${design}: detected after ${(state.elapsedMs / 1_000).toFixed(1)} s\n`);
    expect(state.tally.violationCount).toBeGreaterThan(0);
    expect(state.tally.violations.map(({ call }) => call.label)).toContainEqual(expect.stringMatching(/^local/));
  });
});
