import type { Measured } from "./measure.js";

/** What must hold at twice the capacity. */
export const promises = {
  /** The slowest hundredth of what is served, as a multiple of that while the service is just busy. */
  slowest: 5,
  /** How much is served, as a share of the capacity. */
  served: 0.5,
  /** How much more memory is resident than while it is just busy, in MiB. */
  memory: 128,
  /** How late a call may be made for its time to say something, in milliseconds. */
  latest: 100,
  /** How much may be turned away right after, as a share of what is asked. */
  afterwards: 0.01,
} as const;

/** What does not hold, a sentence for each. */
export function findFailings({ title, capacity, busy, overload, afterwards }: Measured): string[] {
  const failings: string[] = [];
  const fail = (sentence: string) => failings.push(`${title}: ${sentence}`);

  const { latest } = overload;
  if (!(latest <= promises.latest)) {
    fail(`calls were made up to ${latest.toFixed(0)} ms late, because the machine has other work: times say nothing`);
  }
  const slower = overload.p99 / busy.p99;
  if (!(slower <= promises.slowest)) {
    fail(
      `at twice the capacity p99 is ${slower.toFixed(1)} times that at the capacity, not at most ${promises.slowest}`,
    );
  }
  const served = overload.servedPerSecond / capacity;
  if (!(served >= promises.served)) {
    fail(`at twice the capacity ${served.toFixed(2)} of it is served, not at least ${promises.served}`);
  }
  if (!(overload.shed > 0)) {
    fail(
      "at twice the capacity nothing was turned away for it: it lets everyone in, or its capacity is more than that",
    );
  }
  const grown = Math.max(...overload.memory) - Math.max(...busy.memory);
  if (!(grown <= promises.memory)) {
    fail(`at twice the capacity memory grows by ${grown.toFixed(0)} MiB, not at most ${promises.memory}`);
  }
  const late = afterwards.turnedAwayPerSecond / afterwards.offeredPerSecond;
  if (!(late <= promises.afterwards)) {
    fail(`after the overload ${(100 * late).toFixed(1)} % of half the capacity is still turned away`);
  }
  return failings;
}
