import { spawnSync } from "node:child_process";
import type { TestContext } from "vitest";

/** Leaves the running test out, and says why where everybody sees it. */
export function leaveOut(context: TestContext, reason: string): never {
  process.stdout.write(`left out: ${context.task.name}: ${reason}\n`);
  return context.skip(reason);
}

/** Whether commands for curl can be pasted on this machine. */
export const hasCurl = spawnSync("curl", ["--version"]).status === 0;

/** Leaves the running test out where there is no curl. */
export function needsCurl(context: TestContext): void {
  if (!hasCurl) leaveOut(context, "curl is not installed on this machine");
}
