import { spawnSync } from "node:child_process";
import type { TestContext } from "vitest";

/** Skips the running test, and prints the reason. */
export function skipTest(context: TestContext, reason: string): never {
  process.stdout.write(`skipped: ${context.task.name}: ${reason}\n`);
  return context.skip(reason);
}

/** Whether curl is installed. */
export const hasCurl = spawnSync("curl", ["--version"]).status === 0;

/** Skips the running test if curl is not installed. */
export function needsCurl(context: TestContext): void {
  if (!hasCurl) skipTest(context, "curl is not installed on this machine");
}
