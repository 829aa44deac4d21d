import { createCommandLine, flag, option, seed } from "../../../commands/command-line.js";
import { numberAbove0, oneOf, wholeNumberAbove0 } from "../../../commands/kinds.js";
import { losingDesigns } from "../faults/designs.js";
import { postgresOption } from "../faults/postgres-programs.js";

/** What a run is to be like. Wrong usage and the wish for help are told to the user, and thrown. */
export const { read: readOptions } = createCommandLine({
  name: "failover",
  about: "Looks for acknowledged changes that are lost when a synchronous standby takes the place of its primary.",
  entries: {
    rounds: option("N", "how many primaries are lost, one after the other", wholeNumberAbove0, 3),
    seconds: option("N", "how long changes are made before each loss, at least", numberAbove0, 5),
    seed: seed("for what is left to chance", numberAbove0),
    rate: option("N", "calls per second beside the changes", numberAbove0, 300),
    broken: option(
      "name",
      `a broken design in place of the sound one: ${losingDesigns.join(", ")}`,
      oneOf(losingDesigns),
    ),
    postgres: postgresOption,
    json: flag("the summary as JSON"),
  },
  failsIf: "an acknowledged change is lost, or too little happened to tell",
});
