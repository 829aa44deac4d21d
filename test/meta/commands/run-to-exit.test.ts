import { describe, expect, it, onTestFinished, vi } from "vitest";
import { runToExit, type Undo } from "../../../commands/run-to-exit.js";

describe("a command", () => {
  it.each([
    [true, 0],
    [false, 1],
  ])("that resolves to %s exits with %i after its cleanups, in reverse order", async (succeeded, code) => {
    const seen = await run(async (undo, done) => {
      undo(() => done("the first"));
      undo(() => done("the second"));
      return succeeded;
    });
    expect(seen).toEqual(["the second", "the first", `exit with ${code}`]);
  });

  it("that throws prints the error, and exits with 1 after its cleanups", async () => {
    const seen = await run(async (undo, done) => {
      undo(() => done("the first"));
      throw new Error("failed");
    });
    expect(seen).toEqual([expect.stringContaining("Error: failed\n"), "the first", "exit with 1"]);
  });
});

/** The output, cleanups and exit of a command, in order. */
async function run(command: (undo: Undo, done: (what: string) => void) => Promise<boolean>): Promise<string[]> {
  const seen: string[] = [];
  const see = (what: unknown) => seen.push(`${what}`) > 0;
  const spies = [
    vi.spyOn(process.stderr, "write").mockImplementation(see),
    vi.spyOn(process, "exit").mockImplementation((code) => see(`exit with ${code}`) as never),
  ];
  onTestFinished(() => {
    for (const spy of spies) spy.mockRestore();
  });
  await runToExit((undo) => command(undo, see));
  return seen;
}
