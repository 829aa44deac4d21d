// The soak on the command line: `npm run soak -- --minutes 10`.
import { optionsOrExit } from "../../../commands/command-line.js";
import { createProgress } from "../../../commands/progress.js";
import { runToExit } from "../../../commands/run-to-exit.js";
import { readOptions } from "./options.js";
import { toJson, toText } from "./report.js";
import { runRound } from "./round.js";

const { minutes, seed, faults, leak: bytes, buffers: inBuffers, json } = optionsOrExit(readOptions);
const leak = { bytes, inBuffers };

/** A slow machine may need longer than requested until memory is flat. */
const maxExtension = 4;

let interrupted = false;
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    interrupted = true;
  });
}

const progress = createProgress(process.stderr);
await runToExit(async () => {
  const result = await runRound({
    seconds: minutes * 60,
    maxSeconds: minutes * 60 * maxExtension,
    seed,
    faults,
    leak,
    fill: true,
    shouldStop: () => interrupted,
    say: progress.say,
  });
  progress.clear();
  process.stdout.write(`\n${json ? toJson(result, { seed, minutes, leak, interrupted }) : toText(result)}\n`);
  return result.failings.length === 0 && !interrupted;
});
