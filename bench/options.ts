import { Command, InvalidArgumentError } from "commander";
import type { Row } from "./row.js";

/** What is to be measured, and what becomes of it. */
export interface Options {
  readonly rows: readonly Row[];
  readonly quick: boolean;
  readonly json: boolean;
  /** Where the picture is written to. */
  readonly svg: string | undefined;
  /** Whether the README and its picture are to show what was measured. */
  readonly write: boolean;
}

/** Reads the command line; wrong usage and the wish for help end the process, or throw where `exit` says so. */
export function readOptions(args: readonly string[], known: readonly Row[], exit?: () => never): Options {
  const width = Math.max(...known.map(({ name }) => name.length));
  const list = known.map(({ name, title }) => `  ${name.padEnd(width)}  ${title}`).join("\n");
  const program = new Command("npm run bench --")
    .description("Measures Latchkey against others, side by side on this machine.")
    .argument("[rows...]", "the rows to measure (all)", (name, before: readonly Row[] | undefined) => {
      const row = known.find((each) => each.name === name);
      if (row === undefined) throw new InvalidArgumentError(`There is no such row. There are:\n${list}`);
      return [...(before ?? []), row];
    })
    .option("--quick", "short rounds, all in less than two minutes; the figures are rough", false)
    .option("--json", "the results as JSON", false)
    .option("--svg <file>", "write the picture to this file")
    .option("--write", "write the results into README.md, and the picture into docs/bench.svg", false)
    .addHelpText("after", `\nRows:\n${list}\n\nThe exit code is 1 if a goal is missed.`);
  if (exit) program.exitOverride(exit).configureOutput({ writeErr: () => {} });
  program.parse(args, { from: "user" });
  const [chosen] = program.processedArgs as [readonly Row[] | undefined];
  const { quick, json, svg, write } = program.opts();
  return { rows: chosen ?? known, quick, json, svg, write };
}
