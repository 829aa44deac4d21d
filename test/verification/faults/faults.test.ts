import { describe, expect, it } from "vitest";
import { built, installDesign } from "./designs.js";
import { faultsNamed } from "./injector.js";
import { makeFolder, openTestRounds } from "./test-rounds.js";

/** Moderate, because other tests run on the same machine. `npm run faults` uses a higher rate. */
const callsPerSecond = 500;

const rounds = openTestRounds();

describe("revocation is immediate, in real processes with real clients", () => {
  it("while replicas, Redis, PostgreSQL and the network fail", { timeout: 180_000 }, async () => {
    const faults = faultsNamed(
      "replica killed",
      "replica frozen",
      "redis failed over to a stale copy",
      "old redis writes replayed",
      "redis cut for one",
      "redis stalled for all",
      "postgres stalled for one",
      "connections occupied for one",
      "replica suspended",
      "postgres sessions terminated",
      "postgres crashed",
      "primary lost, standby promoted",
      "long transaction",
    );
    const state = await rounds.run(built, makeFolder(), 3, { seed: 1, seconds: 40, faults, callsPerSecond });
    rounds.expectSound(state, 1, 3, {
      callsPerSecondDuringFaults: 100,
      writesPerSecond: 3,
      delayedCallsPerSecond: 0.5,
      faults,
      minOfEachFault: 1,
    });
  });
});

describe("fault injection detects designs that break the revocation promise", () => {
  it.each([
    ["cache-aside", faultsNamed("redis cut for one", "old redis writes replayed")],
    ["publish-subscribe", faultsNamed("redis cut for one", "redis stalled for one")],
    ["no-wait", []],
    ["no-recheck", []],
    ["no-condition", faultsNamed("postgres stalled for one", "connections occupied for one")],
    ["own-time-of-day", []],
    ["highest-transaction", faultsNamed("changes of one workspace blocked")],
    ["unheard-warnings", faultsNamed("primary lost, standby promoted")],
    ["unwritten-repeats", faultsNamed("primary lost, standby promoted")],
  ])("%s", { timeout: 180_000 }, async (design, faults) => {
    const folder = makeFolder();
    const state = await rounds.run(installDesign(design, folder), folder, 2, {
      callsPerSecond,
      seed: 1,
      seconds: 60,
      faults,
      shouldStop: ({ violationCount }) => violationCount > 0,
    });
    expect(state.tally.violationCount).toBeGreaterThan(0);
  });
});
