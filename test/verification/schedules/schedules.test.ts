import { beforeAll, describe, expect, it } from "vitest";
import { type Outcome, runSchedules } from "./property.js";

/** SCHEDULES=1000000 for a long run, SCHEDULES_SEED to repeat one. */
const { SCHEDULES = "15000", SCHEDULES_SEED } = process.env;

describe("immediate revocation on two replicas with an untrusted Redis, in random orders of events", () => {
  let outcome: Outcome;
  beforeAll(async () => {
    outcome = await runSchedules(Number(SCHEDULES), SCHEDULES_SEED ? Number(SCHEDULES_SEED) : undefined);
  }, 0);

  it("every response and every change includes all changes that were acknowledged before it began", () => {
    expect(outcome.failure).toBeUndefined();
  });

  it.each([
    "acceptedFromMemory",
    "acceptedFromRedis",
    "acceptedFromPostgres",
    "refused",
    "expired",
    "unavailable",
    "fenced",
    "leaseLost",
    "acknowledged",
    "retried",
    "acceptedLate",
    "refusedLate",
    "overdue",
    "changedAsKey",
    "leaseTimeChanged",
  ] as const)("the schedules exercise: %s", (event) => {
    expect(outcome.tally[event]).toBeGreaterThan(Number(SCHEDULES) / 50);
  });
});
