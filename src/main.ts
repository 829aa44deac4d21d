#!/usr/bin/env node
import { exitCodeOf, reportError } from "./cli/exit-codes.js";
import { watchOutput } from "./cli/output.js";
import { createProgram } from "./cli/program.js";
import { serveByDefault } from "./cli/serve.js";

const outputWritten = watchOutput();
try {
  await run(process.argv.slice(2)).finally(outputWritten);
} catch (error) {
  reportError(error);
  process.exitCode = exitCodeOf(error);
}
// All work is done. A client that keeps its connection open must not keep the process alive.
process.exit();

async function run(args: readonly string[]): Promise<void> {
  if (args.length === 0) await serveByDefault(process.env);
  else await createProgram(process.env).parseAsync(args, { from: "user" });
}
