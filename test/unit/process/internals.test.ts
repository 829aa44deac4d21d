import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { garbageCollectorFlags } from "../../../src/process/internals.js";

test.each(garbageCollectorFlags)("this version of Node has the flag %s", (flag) => {
  const options = execFileSync(process.execPath, ["--v8-options"], { encoding: "utf8" });
  expect(options).toContain(`  ${flag.replace(/^--no-/, "--").replace(/=.*/, "")} (`);
});
