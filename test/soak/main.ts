// The soak on the command line: `npm run soak -- --minutes 10`.
import { optionsOrExit } from "../../commands/command-line.js";
import { createProgress } from "../../commands/progress.js";
import { readOptions } from "./options.js";
import { toJson, toText } from "./report.js";
import { runRound } from "./round.js";

const { minutes, seed, faults, leak: leakBytes, json } = optionsOrExit(readOptions);

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
