import { describe, expect, it, onTestFinished, vi } from "vitest";
import { runToExit, type Undo } from "../../../commands/run-to-exit.js";

describe("a command", () => {
  it.each([
    [true, 0],
    [false, 1],
  ])("that resolves to %s ends with %i, once all is undone, last things first", async (holds, code) => {
    const seen = await run(async (undo, done) => {
      undo(() => done("the first"));
      undo(() => done("the second"));
      return holds;
    });
    expect(seen).toEqual(["the second", "the first", `exit with ${code}`]);
  });

  it("that fails says why, and ends with 1, once all is undone", async () => {
    const seen = await run(async (undo, done) => {
      undo(() => done("the first"));
      throw new Error("out of order");
    });
    expect(seen).toEqual([expect.stringContaining("Error: out of order\n"), "the first", "exit with 1"]);
  });
});

/** What happens while a command runs to its end, in order. */
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
