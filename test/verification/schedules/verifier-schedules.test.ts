import { beforeAll, describe, expect, it } from "vitest";
import { runVerifierSchedules, type VerifierOutcome } from "./verifier-property.js";

/** SCHEDULES=1000000 for a long run, SCHEDULES_SEED to repeat one. */
const { SCHEDULES = "15000", SCHEDULES_SEED } = process.env;

describe("a verifier with two replicas and an untrusted Redis, in random orders of events", () => {
  let outcome: VerifierOutcome;
  beforeAll(async () => {
    outcome = await runVerifierSchedules(Number(SCHEDULES), SCHEDULES_SEED ? Number(SCHEDULES_SEED) : undefined);
  }, 0);

  it("every local result includes all changes that were acknowledged before the verification began", () => {
    expect(outcome.failure).toBeUndefined();
  });

  it.each([
    "acceptedLocally",
    "refusedLocally",
    "notFound",
    "acceptedWithExpiry",
    "notLocal",
    "resolved",
    "acknowledged",
    "reconnected",
    "dropped",
  ] as const)("the schedules exercise: %s", (event) => {
    expect(outcome.tally[event]).toBeGreaterThan(Number(SCHEDULES) / 50);
  });
});
