// The process laboratory on the command line: `npm run faults -- --minutes 15 --seed 7`.
import { optionsOrExit } from "../../../commands/command-line.js";
import { createProgress } from "../../../commands/progress.js";
import { makeFolder, runToExit, type Undo } from "../../../commands/run-to-exit.js";
import { openCluster } from "./cluster.js";
import { clusterOf, installDesign } from "./designs.js";
import { openLaboratory, unlikeClocks } from "./laboratory.js";
import { readOptions } from "./options.js";
import { programsOf } from "./postgres-programs.js";
import { toJson, toLine, toText } from "./report.js";
import { runRound } from "./round.js";
import { findFailings } from "./verdict.js";

const { minutes, seed, replicas, rate, design, postgres, only: faults, json } = optionsOrExit(readOptions);

/** How often every kind of fault must have come in a round of at least so many minutes; none need in a shorter one. */
const leastOfEachFault = [
  { minutes: 30, times: 20 },
  { minutes: 2, times: 1 },
];

/** What the start and the end of a round may take together. */
const mostOverheadMs = 5 * 60_000;

let interrupted = false;
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    // The first lets the round end properly; another does not wait for that.
    if (interrupted) process.exit(1);
    interrupted = true;
  });
}
const folder = makeFolder("faults");
setTimeout(
  () => {
    process.stderr.write("\nthe round does not come to an end\n");
    process.exit(1);
  },
  minutes * 60_000 + mostOverheadMs,
).unref();

await runToExit(runOnce);

/** One round with everything that it needs. Returns whether it holds. */
async function runOnce(undo: Undo): Promise<boolean> {
  const dist = installDesign(design, folder);
  const cluster = await openCluster(folder, { ...clusterOf(design), programs: programsOf(postgres) });
  undo(() => cluster.close());
  const laboratory = await openLaboratory({ cluster, replicas, clocks: unlikeClocks, dist, folder });
  undo(() => laboratory.close());

  const progress = createProgress(process.stderr, 10_000);
  const cpuBefore = process.cpuUsage();
  const state = await runRound(laboratory, {
    seed,
    seconds: minutes * 60,
    callsPerSecond: rate,
    faults,
    // A broken design is found once it is found.
    enough: ({ violationCount }) => interrupted || (design !== undefined && violationCount > 0),
    progress: (state) => progress.say(toLine(state)),
  });
  const { user, system } = process.cpuUsage(cpuBefore);
  const failings = findFailings(state, {
    callsPerSecondWhileFaultsOn: (rate * 2) / 3,
    writesPerSecond: 5,
    // The number of late clients grows with the rate, up to a limit.
    lateCallsPerSecond: Math.min(3, rate / 200),
    faults,
    leastOfEachFault: leastOfEachFault.find((least) => minutes >= least.minutes)?.times ?? 0,
  });
  if (interrupted) failings.push("it was interrupted");
  const ownCpu = (user + system) / 1_000 / state.elapsedMs;
  const facts = { seed, replicas, design: design ?? "as it is", postgres: cluster.version, ownCpu, failings };
  process.stdout.write(`\n${json ? toJson(state, facts) : toText(state, facts)}\n`);
  return failings.length === 0;
}
