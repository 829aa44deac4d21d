import fc from "fast-check";
import { createVerifierTally, runVerifierSchedule, type VerifierTally } from "./verifier-schedule.js";

export interface VerifierOutcome {
  readonly tally: VerifierTally;
  /** The first schedule with a violation, step by step, with the seed to repeat it. */
  readonly failure: string | undefined;
  /** How many schedules ran. */
  readonly runs: number;
}

/** Runs this many schedules, or fewer if one has a violation. Without a seed, each run has other schedules. */
export async function runVerifierSchedules(numRuns: number, seed?: number): Promise<VerifierOutcome> {
  const tally = createVerifierTally();
  const property = fc.asyncProperty(fc.scheduler(), fc.integer(), (scheduler, dice) =>
    runVerifierSchedule(scheduler, dice, tally),
  );
  const details = await fc.check(property, {
    numRuns,
    ...(seed !== undefined && { seed }),
    // The choices of the scheduler cannot be shrunk.
    endOnFailure: true,
    includeErrorInReport: true,
  });
  return { tally, failure: await fc.asyncDefaultReportMessage(details), runs: details.numRuns };
}
