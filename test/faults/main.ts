// The process laboratory on the command line: `npm run faults -- --minutes 15 --seed 7`.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startBackends } from "../../src/embedded/backends.js";
import { brokenDesigns, built, installDesign } from "./designs.js";
import { faultKinds } from "./faults.js";
import { openLaboratory } from "./laboratory.js";
import { createProgress } from "./progress.js";
import { toJson, toText } from "./report.js";
import { runRound } from "./round.js";
import { findFailings } from "./verdict.js";

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "1" },
    seed: { type: "string", default: `${Date.now() % 1_000_000}` },
    replicas: { type: "string", default: "3" },
    rate: { type: "string", default: "1500" },
    design: { type: "string" },
    only: { type: "string", default: "" },
    json: { type: "boolean", default: false },
  },
});
const minutes = positive("minutes", values.minutes);
const seed = positive("seed", values.seed);
const replicas = positive("replicas", values.replicas);
const callsPerSecond = positive("rate", values.rate);
const { design } = values;
if (design !== undefined && !brokenDesigns.includes(design)) {
  throw new Error(`--design must be one of: ${brokenDesigns.join(", ")}`);
}
const faults = faultKinds.filter(({ name }) => name.includes(values.only));
if (faults.length === 0) throw new Error(`no fault has "${values.only}" in its name`);

/** Rounds of less than this are too short for every kind of fault to come. */
const longMinutes = 2;

let interrupted = false;
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    interrupted = true;
  });
}
const folder = mkdtempSync(join(tmpdir(), "latchkey-faults-"));
process.once("exit", () => rmSync(folder, { recursive: true, force: true }));

const undo: (() => unknown)[] = [];
let holds = false;
try {
  holds = await runOnce();
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.stack : error}\n`);
} finally {
  for (const step of undo.reverse()) await step();
}
// Not left to Node: with connections that were cut in the middle, it can spin for ever while it clears up.
process.exit(holds ? 0 : 1);

/** One round with everything that it needs. Returns whether it holds. */
async function runOnce(): Promise<boolean> {
  const dist = design === undefined ? built : installDesign(design, folder);
  const dataDir = join(folder, "backends");
  const backends = await startBackends({ dataDir, searchPath: "", withRedis: false, durable: false });
  undo.push(() => backends.stop());
  const laboratory = await openLaboratory({ databaseUrl: backends.databaseUrl, replicas, dist, folder });
  undo.push(() => laboratory.close());

  const cpuBefore = process.cpuUsage();
  const state = await runRound(laboratory, {
    seed,
    seconds: minutes * 60,
    callsPerSecond,
    faults,
    enough: () => interrupted,
    progress: createProgress(process.stderr),
  });
  const { user, system } = process.cpuUsage(cpuBefore);
  const failings = findFailings(state, {
    callsPerSecondWhileFaultsOn: (callsPerSecond * 2) / 3,
    writesPerSecond: 5,
    faults: minutes >= longMinutes ? faults : [],
  });
  if (interrupted) failings.push("it was interrupted");
  const ownCpu = (user + system) / 1_000 / state.elapsedMs;
  const facts = { seed, replicas, design: design ?? "as it is", ownCpu, failings };
  process.stdout.write(`\n${values.json ? toJson(state, facts) : toText(state, facts)}\n`);
  return failings.length === 0;
}

function positive(name: string, text: string): number {
  const number = Number(text);
  if (!(number > 0)) throw new Error(`--${name} must be a number above 0, not ${text}`);
  return number;
}
