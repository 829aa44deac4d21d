import { httpSide, verifyRequests } from "../http-verify.js";
import { createFixture, startLatchkey } from "../latchkey.js";
import { alternate, type Round, throughputLine } from "../rounds.js";
import type { Row } from "../row.js";
import { pairRatios } from "../statistics.js";

const title = "WORKERS=2 / WORKERS=1, excluding the load generator";

/**
 * The gain of a second worker. On a machine without spare cores, the load generator competes with two workers more than
 * with one, so its CPU time is excluded. A server is saturated when its busiest process uses a whole core. Calls per
 * second of that process's CPU time are therefore the throughput that the server would reach with one core per process.
 * The figure still shows an uneven distribution of work, and a dispatching process that is itself the bottleneck.
 */
export const workers: Row = {
  name: "workers",
  title,
  async measure(bench) {
    const two = await startLatchkey(bench, { name: "WORKERS=2", env: { WORKERS: "2" } });
    const one = await startLatchkey(bench, {
      name: "WORKERS=1",
      env: { WORKERS: "1", DATABASE_URL: two.databaseUrl },
    });
    const requests = verifyRequests(await createFixture(two));
    const ours = await httpSide(bench, { ...two, port: two.httpPort }, requests);
    const theirs = await httpSide(bench, { ...one, port: one.httpPort }, requests);
    const rounds = await alternate(bench, ours, theirs);
    const raw = throughputLine(
      { title: "the same in calls per second, with the load generator on the same cores" },
      { name: ours.name, rounds: rounds.ours },
      { name: theirs.name, rounds: rounds.theirs },
    );
    return [
      {
        title,
        goal: { atLeast: 1.6 },
        value: pairRatios(rounds.ours.map(capacityOf), rounds.theirs.map(capacityOf)),
        sides: [],
        notes: [
          "calls per second of CPU time of the busiest process: the throughput if the load generator ran elsewhere",
        ],
      },
      raw,
    ];
  },
};

/** The calls per second that a server could serve if each of its processes had its own core. */
export function capacityOf({ callsPerSecond, busiestCores }: Round): number {
  return callsPerSecond / busiestCores;
}
