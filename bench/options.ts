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

/** Reads the command line. Wrong usage and the wish for help are told to the user, and thrown. */
export function readOptions(args: readonly string[], known: readonly Row[]): Options {
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
    .option("--write", "write the results of a full run into README.md, and the picture into docs/bench.svg", false)
    .addHelpText(
      "after",
      `\nRows:\n${list}\n\nThe exit code is 1 if a goal is missed or a row fails, 2 for wrong usage.`,
    )
    .exitOverride();
  program.parse(args, { from: "user" });
  const [chosen] = program.processedArgs as [readonly Row[]];
  const { quick, json, svg, write } = program.opts();
  // What stands in the README must be all of it, and no rough figures.
  if (write && (quick || chosen.length > 0)) program.error("error: --write is for a full run of all rows");
  return { rows: chosen.length > 0 ? chosen : known, quick, json, svg, write };
}
