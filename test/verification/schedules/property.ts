import fc from "fast-check";
import { runSchedule } from "./schedule.js";
import { createTally, type Tally } from "./tally.js";

export interface Outcome {
  readonly tally: Tally;
  /** The first schedule with a violation, step by step, with the seed to repeat it. */
  readonly failure: string | undefined;
}

/** Runs this many schedules, or fewer if one has a violation. Without a seed, each run has other schedules. */
export async function runSchedules(numRuns: number, seed?: number): Promise<Outcome> {
  const tally = createTally();
  const property = fc.asyncProperty(fc.scheduler(), fc.integer(), (scheduler, dice) =>
    runSchedule(scheduler, dice, tally),
  );
  const details = await fc.check(property, {
    numRuns,
    ...(seed !== undefined && { seed }),
    // The choices of the scheduler cannot be shrunk.
    endOnFailure: true,
    includeErrorInReport: true,
  });
  return { tally, failure: await fc.asyncDefaultReportMessage(details) };
}
