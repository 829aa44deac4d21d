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

/** A shell command that works if protoc is installed with its own files of google/protobuf (Debian's libprotobuf-dev). */
export const protocCheck = "protoc --descriptor_set_out=/dev/null google/protobuf/timestamp.proto";

/** Skips the running test if a shell command, which needs certain tools, does not work. */
export function needsTools(context: TestContext, check: string): void {
  if (spawnSync("sh", ["-c", check]).status !== 0) {
    skipTest(context, `tools are not installed: this command does not work on this machine: ${check}`);
  }
}
