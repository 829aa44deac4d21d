import { createCommandLine, flag, option, seed } from "../../../commands/command-line.js";
import { numberAbove0, oneOf, wholeNumberAbove0 } from "../../../commands/kinds.js";
import { losingDesigns } from "../faults/designs.js";
import { postgresOption } from "../faults/postgres-programs.js";

/** The options of a run. Reports wrong usage and requests for help to the user, and throws. */
export const { read: readOptions } = createCommandLine({
  name: "failover",
  about: "Looks for acknowledged changes that are lost in a failover to a synchronous standby.",
  entries: {
    rounds: option("N", "number of failovers, one after the other", wholeNumberAbove0, 3),
    seconds: option("N", "minimum duration of the changes before each failover", numberAbove0, 5),
    seed: seed("for random choices", numberAbove0),
    rate: option("N", "calls per second in addition to the changes", numberAbove0, 300),
    broken: option(
      "name",
      `run a broken design instead of the built service: ${losingDesigns.join(", ")}`,
      oneOf(losingDesigns),
    ),
    postgres: postgresOption,
    json: flag("print the summary as JSON"),
  },
  failsIf: "an acknowledged change is lost, or the run has too few changes to prove anything",
});
