import type { TestContext } from "vitest";

/** Leaves the running test out, and says why where everybody sees it. */
export function leaveOut(context: TestContext, reason: string): never {
  process.stdout.write(`left out: ${context.task.name}: ${reason}\n`);
  return context.skip(reason);
}
