import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Registers a cleanup step. */
export type Undo = (step: () => unknown) => void;

/**
 * Runs a command, then its cleanup steps in reverse order, and exits: with 0 if the command resolves to true, otherwise
 * with 1. The explicit exit is necessary, because Node can spin forever while it cleans up connections that were cut in
 * the middle.
 */
export async function runToExit(run: (undo: Undo) => Promise<boolean>): Promise<never> {
  const steps: (() => unknown)[] = [];
  let passed = false;
  try {
    passed = await run((step) => steps.unshift(step));
  } catch (error) {
    process.stderr.write(`\n${error instanceof Error ? error.stack : error}\n`);
  } finally {
    for (const step of steps) await step();
  }
  return process.exit(passed ? 0 : 1);
}

/** Creates a temporary folder that is removed when this process exits. */
export function makeFolder(name: string): string {
  const folder = mkdtempSync(join(tmpdir(), `latchkey-${name}-`));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
