#!/usr/bin/env node
import { exitCodeOf, reportError } from "./cli/exit-codes.js";
import { createProgram } from "./cli/program.js";

try {
  const words = process.argv.slice(2);
  await createProgram(process.env).parseAsync(words.length > 0 ? words : ["serve"], { from: "user" });
} catch (error) {
  reportError(error);
  process.exitCode = exitCodeOf(error);
}
// Nothing is left to do; a client that does not let go of its connection must not keep the process alive.
process.exit();
