import fc from "fast-check";
import { runSchedule } from "./schedule.js";
import { createTally, type Tally } from "./tally.js";

export interface Outcome {
  readonly tally: Tally;
  /** The first schedule that went wrong, step by step, with the seed to run it again. */
  readonly failure: string | undefined;
}

/** Runs so many schedules, or fewer if one goes wrong. Without a seed they are others each time. */
export async function runSchedules(numRuns: number, seed?: number): Promise<Outcome> {
  const tally = createTally();
  const property = fc.asyncProperty(fc.scheduler(), fc.integer(), (scheduler, dice) =>
    runSchedule(scheduler, dice, tally),
  );
  const details = await fc.check(property, {
    numRuns,
    ...(seed !== undefined && { seed }),
    // What the scheduler chose cannot be made smaller.
    endOnFailure: true,
    includeErrorInReport: true,
  });
  return { tally, failure: await fc.asyncDefaultReportMessage(details) };
}
