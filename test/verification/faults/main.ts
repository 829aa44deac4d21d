// Fault injection on the command line: `npm run faults -- --minutes 15 --seed 7`.
import { optionsOrExit } from "../../../commands/command-line.js";
import { createProgress } from "../../../commands/progress.js";
import { makeFolder, runToExit, type Undo } from "../../../commands/run-to-exit.js";
import { openCluster } from "./cluster.js";
import { clusterOf, installDesign } from "./designs.js";
import { isOfVerifier } from "./faults.js";
import { findFailings } from "./findings.js";
import { divergentClocks, openEnvironment } from "./laboratory.js";
import { readOptions } from "./options.js";
import { binariesOf } from "./postgres-programs.js";
import { toJson, toLine, toText } from "./report.js";
import { runRound } from "./round.js";

const { minutes, seed, replicas, rate, verifiers, localRate, design, postgres, only, json } =
  optionsOrExit(readOptions);

const faults = verifiers > 0 ? only : only.filter((kind) => !isOfVerifier(kind));

/** How often each kind of fault must occur in a round of at least so many minutes. Shorter rounds have no minimum. */
const minOfEachFault = [
  { minutes: 30, times: 20 },
  { minutes: 2, times: 1 },
];

/** The maximum time for the start and the end of a round together. */
const maxOverheadMs = 5 * 60_000;

let interrupted = false;
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    // The first signal ends the round properly. A second one exits at once.
    if (interrupted) process.exit(1);
    interrupted = true;
  });
}
const folder = makeFolder("faults");
setTimeout(
  () => {
    process.stderr.write("\ntimeout: the round did not end in time\n");
    process.exit(1);
  },
  minutes * 60_000 + maxOverheadMs,
).unref();

await runToExit(runOnce);

/** Runs one round. Returns whether it passes. */
async function runOnce(undo: Undo): Promise<boolean> {
  const dist = installDesign(design, folder);
  const cluster = await openCluster(folder, { ...clusterOf(design), programs: binariesOf(postgres) });
  undo(() => cluster.close());
  const environment = await openEnvironment({ cluster, replicas, clocks: divergentClocks, dist, folder });
  undo(() => environment.close());

  const progress = createProgress(process.stderr, 10_000);
  const cpuBefore = process.cpuUsage();
  const state = await runRound(environment, {
    seed,
    seconds: minutes * 60,
    callsPerSecond: rate,
    verifiers: { count: verifiers, callsPerSecond: localRate },
    faults,
    // One violation suffices to detect a broken design.
    shouldStop: ({ violationCount }) => interrupted || (design !== undefined && violationCount > 0),
    progress: (state) => progress.say(toLine(state)),
  });
  const { user, system } = process.cpuUsage(cpuBefore);
  const failings = findFailings(state, {
    callsPerSecondDuringFaults: (rate * 2) / 3,
    localPerSecondDuringFaults: verifiers > 0 ? localRate / 3 : 0,
    writesPerSecond: 5,
    // The number of clients with delayed bodies grows with the rate, up to a limit.
    delayedCallsPerSecond: Math.min(3, rate / 200),
    faults,
    minOfEachFault: minOfEachFault.find((min) => minutes >= min.minutes)?.times ?? 0,
  });
  if (interrupted) failings.push("interrupted");
  const ownCpu = (user + system) / 1_000 / state.elapsedMs;
  const facts = {
    seed,
    replicas,
    design: design ?? "none (the built service)",
    postgres: cluster.version,
    ownCpu,
    failings,
  };
  process.stdout.write(`\n${json ? toJson(state, facts) : toText(state, facts)}\n`);
  return failings.length === 0;
}
