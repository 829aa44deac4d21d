import { httpSide, verifyRequests } from "../http-verify.js";
import { createScene, startLatchkey } from "../latchkey.js";
import { alternate, type Round, throughputLine } from "../rounds.js";
import type { Row } from "../row.js";
import { pairRatios } from "../statistics.js";

const title = "WORKERS=2 / WORKERS=1, the load generator aside";

/**
 * What a second worker brings. Where there are no cores to spare, the load takes from two workers what it does not take
 * from one. So it is set aside: of each side, the calls that a second of its CPU answers are multiplied by the cores that
 * it could use if the load were elsewhere. These are the cores that the two kept busy together, but no more than there
 * are workers; so workers that do not share the work evenly still show. With cores to spare, both lines agree.
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
        value: pairRatios(rounds.ours.map(capacityWith(2)), rounds.theirs.map(capacityWith(1))),
        sides: [],
        notes: ["calls per CPU second of the servers, times the cores that they could use if the load were elsewhere"],
      },
      raw,
    ];
  },
};

/** The calls per second that so many workers could answer if the load were elsewhere. */
export function capacityWith(workers: number) {
  return ({ callsPerCpuSecond, serverCores, loadCores }: Round): number =>
    callsPerCpuSecond * Math.min(workers, serverCores + loadCores);
}
