import { beforeAll, describe, expect, it } from "vitest";
import { type Outcome, runSchedules } from "./property.js";

/** SCHEDULES=1000000 for a long run, SCHEDULES_SEED to repeat one. */
const { SCHEDULES = "15000", SCHEDULES_SEED } = process.env;

describe("two replicas with a Redis that cannot be trusted, in any order of events", () => {
  let outcome: Outcome;
  beforeAll(async () => {
    outcome = await runSchedules(Number(SCHEDULES), SCHEDULES_SEED ? Number(SCHEDULES_SEED) : undefined);
  }, 0);

  it("no call is answered, and no change made, without a change that was acknowledged before it began", () => {
    expect(outcome.failure).toBeUndefined();
  });

  it.each([
    "acceptedFromHoldings",
    "acceptedFromRedis",
    "acceptedFromPostgres",
    "refused",
    "over",
    "unavailable",
    "fenced",
    "leaseLost",
    "acknowledged",
    "repeated",
    "acceptedLate",
    "refusedLate",
    "overdue",
    "changedAsKey",
    "leaseTimeChanged",
  ] as const)("it is not for want of events: %s", (event) => {
    expect(outcome.tally[event]).toBeGreaterThan(Number(SCHEDULES) / 50);
  });
});
