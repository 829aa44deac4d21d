import { httpSide, verifyRequests } from "../http-verify.js";
import { createScene, startLatchkey } from "../latchkey.js";
import { alternate, type Round, throughputLine } from "../rounds.js";
import type { Row } from "../row.js";
import { pairRatios } from "../statistics.js";

const title = "WORKERS=2 / WORKERS=1, the load generator aside";

/**
 * What a second worker brings. Where there are no cores to spare, the load takes from two workers what it does not take
 * from one. So it is set aside: a server is at its limit when its busiest process keeps a whole core busy, and what it
 * answers in a second of that process's CPU time is what it could answer in a second with as many cores as it has
 * processes. If the work is not shared evenly, or is handed out by a process that is busy with that, it shows.
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
    const requests = verifyRequests(await createScene(two));
    const ours = await httpSide(bench, { ...two, port: two.httpPort }, requests);
    const theirs = await httpSide(bench, { ...one, port: one.httpPort }, requests);
    const rounds = await alternate(bench, ours, theirs);
    const raw = throughputLine(
      { title: "the same in calls per second, the load generator on the same cores" },
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
          "of each side, the calls per second of CPU time of its busiest process: its limit if the load were elsewhere",
        ],
      },
      raw,
    ];
  },
};

/** The calls per second that a server could answer if each of its processes had a core to itself. */
export function capacityOf({ callsPerSecond, busiestCores }: Round): number {
  return callsPerSecond / busiestCores;
}
