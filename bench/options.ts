import { createCommandLine, flag, option, parts } from "../commands/command-line.js";
import { file } from "../commands/kinds.js";
import { pictureFile, resultsFile, summaryFile } from "./readme.js";
import type { Row } from "./row.js";

/** What is to be measured, and what becomes of it. Wrong usage and the wish for help are told to the user, and thrown. */
export function readOptions(args: readonly string[], known: readonly Row[]) {
  const { read, refuse } = createCommandLine({
    name: "bench",
    about: "Measures Latchkey against others, side by side on this machine.",
    entries: {
      rows: parts("row", known),
      quick: flag("short rounds, all in less than two minutes; the figures are rough"),
      json: flag("the results as JSON"),
      svg: option("file", "write the picture to this file", file),
      write: flag(`write the results of a full run into ${resultsFile}, ${summaryFile} and ${pictureFile}`),
    },
    failsIf: "a goal is missed or a row fails",
  });
  const { rows, ...options } = read(args);
  // The documents show full results only, and no rough figures.
  if (options.write && (options.quick || rows.length > 0)) refuse("--write is for a full run of all rows");
  return { ...options, rows: rows.length > 0 ? rows : known };
}
