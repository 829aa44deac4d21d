// The loss of primaries on the command line: `npm run failover -- --rounds 5`.
import { optionsOrExit } from "../../commands/command-line.js";
import { createProgress } from "../../commands/progress.js";
import { makeFolder, runToExit } from "../../commands/run-to-exit.js";
import { openCluster } from "../faults/cluster.js";
import { openLaboratory } from "../faults/laboratory.js";
import { brokenDesigns, install, sound } from "./designs.js";
import { readOptions } from "./options.js";
import { findFailings, toJson, toText } from "./report.js";
import { runRounds } from "./round.js";

const { rounds, seconds, seed, rate, broken, json } = optionsOrExit(readOptions);
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
  const design = (broken === undefined ? undefined : brokenDesigns[broken]) ?? sound;
  progress.say("starting a primary and its standby");
  const cluster = await openCluster(folder, design);
  undo(() => cluster.close());
  progress.say("starting two replicas");
  const dist = install(broken, design, folder);
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
  const facts = { seed, design: broken ?? "as it is", failings };
  process.stdout.write(`\n${json ? toJson(state, facts) : toText(state, facts)}\n`);
  return failings.length === 0;
});
