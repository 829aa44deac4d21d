import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Leaves something to be undone in the end. */
export type Undo = (step: () => unknown) => void;

/**
 * Runs a command, undoes what it has left to be undone, last things first, and ends this process: with 0 if the command
 * resolves to true, else with 1. Not left to Node: with connections that were cut in the middle, it can spin for ever
 * while it clears up.
 */
export async function runToExit(run: (undo: Undo) => Promise<boolean>): Promise<never> {
  const steps: (() => unknown)[] = [];
  let holds = false;
  try {
    holds = await run((step) => steps.unshift(step));
  } catch (error) {
    process.stderr.write(`\n${error instanceof Error ? error.stack : error}\n`);
  } finally {
    for (const step of steps) await step();
  }
  return process.exit(holds ? 0 : 1);
}

/** Makes a folder that is there for as long as this process. */
export function makeFolder(name: string): string {
  const folder = mkdtempSync(join(tmpdir(), `latchkey-${name}-`));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
