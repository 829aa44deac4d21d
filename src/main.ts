#!/usr/bin/env node
import { exitCodeOf, reportError } from "./cli/exit-codes.js";
import { watchOutput } from "./cli/output.js";
import { createProgram } from "./cli/program.js";
import { serveByDefault } from "./cli/serve.js";

const outputWritten = watchOutput();
const exitCode = await attempt(run);
// Also if the command has failed: `key import` prints what it has stored, and then fails.
const outputExitCode = await attempt(outputWritten);
// All work is done. A client that keeps its connection open must not keep the process alive.
process.exit(exitCode || outputExitCode);

async function run(): Promise<void> {
  const args = process.argv.slice(2);
  if (args.length === 0) await serveByDefault(process.env);
  else await createProgram(process.env).parseAsync(args, { from: "user" });
}

/** Reports an error of a step. Returns the exit code. */
async function attempt(step: () => Promise<void>): Promise<number> {
  try {
    await step();
    return 0;
  } catch (error) {
    reportError(error);
    return exitCodeOf(error);
  }
}
