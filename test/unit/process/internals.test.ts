import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { heapGrowthFlag } from "../../../src/process/internals.js";

test("this version of Node has the flag that limits the growth of the heap", () => {
  const options = execFileSync(process.execPath, ["--v8-options"], { encoding: "utf8" });
  expect(options).toContain(`  ${heapGrowthFlag.replace(/=.*/, "")} `);
});
