import { createCommandLine, flag, option, parts } from "../commands/command-line.js";
import { file } from "../commands/kinds.js";
import { pictureFile, resultsFile, summaryFile } from "./readme.js";
import type { Row } from "./row.js";

/** Reads the command line. Wrong usage and --help are printed, and thrown as an error. */
export function readOptions(args: readonly string[], known: readonly Row[]) {
  const { read, refuse } = createCommandLine({
    name: "bench",
    about: "Compares Latchkey with other servers on this machine.",
    entries: {
      rows: parts("row", known),
      quick: flag("short rounds, all in less than two minutes; the figures are rough"),
      json: flag("print the results as JSON"),
      svg: option("file", "write the chart to this file", file),
      write: flag(`write the results of a full run into ${resultsFile}, ${summaryFile} and ${pictureFile}`),
    },
    failsIf: "a goal is missed or a row fails",
  });
  const { rows, ...options } = read(args);
  // The documents show results of full runs only.
  if (options.write && (options.quick || rows.length > 0)) refuse("--write requires a full run of all rows");
  return { ...options, rows: rows.length > 0 ? rows : known };
}
