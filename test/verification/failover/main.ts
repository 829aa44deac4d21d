// Failovers under load, on the command line: `npm run failover -- --rounds 5`.
import { optionsOrExit } from "../../../commands/command-line.js";
import { createProgress } from "../../../commands/progress.js";
import { makeFolder, runToExit } from "../../../commands/run-to-exit.js";
import { openCluster } from "../faults/cluster.js";
import { clusterOf, installDesign } from "../faults/designs.js";
import { openEnvironment } from "../faults/laboratory.js";
import { binariesOf } from "../faults/postgres-programs.js";
import { readOptions } from "./options.js";
import { findFailings, toJson, toText } from "./report.js";
import { runRounds } from "./round.js";

const { rounds, seconds, seed, rate, broken, postgres, json } = optionsOrExit(readOptions);
const folder = makeFolder("failover");

let interrupted = false;
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    // The first signal ends the round properly. A second one exits at once.
    if (interrupted) process.exit(1);
    interrupted = true;
  });
}

await runToExit(async (undo) => {
  const progress = createProgress(process.stderr);
  progress.say("starting a primary and its standby");
  const cluster = await openCluster(folder, { ...clusterOf(broken), programs: binariesOf(postgres) });
  undo(() => cluster.close());
  progress.say("starting two replicas");
  const dist = installDesign(broken, folder);
  const environment = await openEnvironment({ cluster, replicas: 2, dist, folder });
  undo(() => environment.close());
  const state = await runRounds(environment, {
    seed,
    rounds,
    seconds,
    callsPerSecond: rate,
    shouldStop: () => interrupted,
    say: progress.say,
  });
  progress.clear();
  const failings = findFailings(state, rounds);
  const facts = { seed, design: broken ?? "none (the built service)", postgres: cluster.version, failings };
  process.stdout.write(`\n${json ? toJson(state, facts) : toText(state, facts)}\n`);
  return failings.length === 0;
});
