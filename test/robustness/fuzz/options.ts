import { createCommandLine, flag, option, seed } from "../../../commands/command-line.js";
import { wholeNumberAbove0 } from "../../../commands/kinds.js";

/** As fast-check reports it. */
const path = {
  must: "numbers with colons between",
  read: (text: string) => (/^\d+(:\d+)*$/.test(text) ? text : undefined),
};

/** What a run is to be like. Wrong usage and the wish for help are told to the user, and thrown. */
export const { read: readOptions } = createCommandLine({
  name: "fuzz",
  about: "Sends bad input of all kinds to every operation of a Latchkey of its own, through every protocol.",
  entries: {
    cases: option("N", "how many", wholeNumberAbove0, 20_000),
    seed: seed("which; the same seed, the same cases", wholeNumberAbove0),
    path: option("P", "one case again, by the seed and the path that were reported with it", path),
    json: flag("the report as JSON"),
  },
  failsIf: "a case is not answered as it must be",
});
