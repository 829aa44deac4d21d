// The loss of primaries on the command line: `npm run failover -- --rounds 5`.
import { optionsOrExit } from "../../../commands/command-line.js";
import { createProgress } from "../../../commands/progress.js";
import { makeFolder, runToExit } from "../../../commands/run-to-exit.js";
import { openCluster } from "../faults/cluster.js";
import { clusterOf, installDesign } from "../faults/designs.js";
import { openLaboratory } from "../faults/laboratory.js";
import { programsOf } from "../faults/postgres-programs.js";
import { readOptions } from "./options.js";
import { findFailings, toJson, toText } from "./report.js";
import { runRounds } from "./round.js";

const { rounds, seconds, seed, rate, broken, postgres, json } = optionsOrExit(readOptions);
const folder = makeFolder("failover");

let interrupted = false;
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    // The first lets the round end properly; another does not wait for that.
    if (interrupted) process.exit(1);
    interrupted = true;
  });
}

await runToExit(async (undo) => {
  const progress = createProgress(process.stderr);
  progress.say("starting a primary and its standby");
  const cluster = await openCluster(folder, { ...clusterOf(broken), programs: programsOf(postgres) });
  undo(() => cluster.close());
  progress.say("starting two replicas");
  const dist = installDesign(broken, folder);
  const laboratory = await openLaboratory({ cluster, replicas: 2, dist, folder });
  undo(() => laboratory.close());
  const state = await runRounds(laboratory, {
    seed,
    rounds,
    seconds,
    callsPerSecond: rate,
    enough: () => interrupted,
    say: progress.say,
  });
  progress.clear();
  const failings = findFailings(state, rounds);
  const facts = { seed, design: broken ?? "as it is", postgres: cluster.version, failings };
  process.stdout.write(`\n${json ? toJson(state, facts) : toText(state, facts)}\n`);
  return failings.length === 0;
});
