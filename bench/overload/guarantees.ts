import type { Measured } from "./measure.js";

/** The guarantees at twice the capacity. */
export const promises = {
  /** Maximum p99 of served calls, as a multiple of the p99 in the closed loop. */
  slowest: 5,
  /** Minimum of served calls, as a fraction of the capacity. */
  served: 0.5,
  /** Maximum growth of resident memory compared with the closed loop, in MiB. */
  memory: 128,
  /** Maximum delay of a call after its due time, in milliseconds. Beyond it, latencies are not meaningful. */
  latest: 100,
  /** Maximum of refused calls right after the overload, as a fraction of the offered calls. */
  afterwards: 0.01,
} as const;

/** One sentence for each guarantee that does not hold. */
export function findFailings({ title, capacity, busy, overload, afterwards }: Measured): string[] {
  const failings: string[] = [];
  const fail = (sentence: string) => failings.push(`${title}: ${sentence}`);

  const { latest } = overload;
  if (!(latest <= promises.latest)) {
    fail(`calls started up to ${latest.toFixed(0)} ms late because of other load; latencies are not meaningful`);
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
    fail("at twice the capacity no call was shed: the service accepts everything, or its capacity is higher");
  }
  const grown = Math.max(...overload.memory) - Math.max(...busy.memory);
  if (!(grown <= promises.memory)) {
    fail(`at twice the capacity memory grows by ${grown.toFixed(0)} MiB, not at most ${promises.memory}`);
  }
  const refused = afterwards.shedPerSecond / afterwards.offeredPerSecond;
  if (!(refused <= promises.afterwards)) {
    fail(`after the overload ${(100 * refused).toFixed(1)} % of half the capacity is still refused`);
  }
  return failings;
}
