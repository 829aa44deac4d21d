import { createCommandLine, flag, option, seed } from "../../../commands/command-line.js";
import { wholeNumberAbove0 } from "../../../commands/kinds.js";

/** A path in the form in which fast-check reports it. */
const path = {
  must: "numbers separated by colons",
  read: (text: string) => (/^\d+(:\d+)*$/.test(text) ? text : undefined),
};

/** Reads the command line. Wrong usage and --help are printed, and thrown as an error. */
export const { read: readOptions } = createCommandLine({
  name: "fuzz",
  about: "Starts a Latchkey and sends invalid input of all kinds to every operation over every protocol.",
  entries: {
    cases: option("N", "number of cases", wholeNumberAbove0, 20_000),
    seed: seed("seed of the cases; the same seed repeats the same cases", wholeNumberAbove0),
    path: option("P", "replay one case, by its reported seed and path", path),
    json: flag("print the report as JSON"),
  },
  failsIf: "a response violates the contract",
});
