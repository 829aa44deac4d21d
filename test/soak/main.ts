// The soak on the command line: `npm run soak -- --minutes 10`.
import { createProgress } from "../../bench/progress.js";
import { type Options, readOptions, usage } from "./options.js";
import { toJson, toText } from "./report.js";
import { runRound } from "./round.js";

const { minutes, seed, faults, leakBytes, json } = optionsOrExit();

let interrupted = false;
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    interrupted = true;
  });
}

const progress = createProgress(process.stderr);
let passes = false;
try {
  const result = await runRound({
    seconds: minutes * 60,
    seed,
    faults,
    leakBytes,
    fill: true,
    enough: () => interrupted,
    say: progress.say,
  });
  progress.clear();
  passes = result.failings.length === 0 && !interrupted;
  process.stdout.write(`\n${json ? toJson(result, { seed, minutes, leakBytes, interrupted }) : toText(result)}\n`);
} catch (error) {
  process.stderr.write(`\n${error instanceof Error ? error.stack : error}\n`);
}
// Not left to Node: connections that were cut off may linger.
process.exit(passes ? 0 : 1);

/** Tells how it is used, and ends, if that is asked for or is what is wrong. */
function optionsOrExit(): Options {
  try {
    const options = readOptions(process.argv.slice(2));
    if (options !== "help") return options;
    process.stdout.write(usage);
    return process.exit(0);
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n\n${usage}`);
    return process.exit(2);
  }
}
