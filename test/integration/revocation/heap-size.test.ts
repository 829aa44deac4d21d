import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";

const run = promisify(execFile);

describe("a full cache takes as much heap as its capacity", () => {
  const capacity = 16 * 1024 * 1024;

  it.each([
    ["small", 40_000],
    ["a long text", 3_000],
    ["many small objects", 1_000],
    ["many names", 1_500],
  ])("if the meta of keys is %s", { timeout: 120_000 }, async (kind, entries) => {
    const program = fileURLToPath(new URL("full-cache.mjs", import.meta.url));
    const { stdout } = await run(process.execPath, ["--expose-gc", program, kind, `${capacity}`, `${entries}`]);
    expect(Number(stdout) / capacity).toBeGreaterThan(0.8);
    expect(Number(stdout) / capacity).toBeLessThan(1.15);
  });
});
