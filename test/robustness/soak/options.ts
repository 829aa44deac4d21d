import { createCommandLine, flag, option, seed } from "../../../commands/command-line.js";
import { numberOfAtLeast } from "../../../commands/kinds.js";

/** What a soak is to be like. Wrong usage and the wish for help are told to the user, and thrown. */
export const { read: readOptions } = createCommandLine({
  name: "soak",
  about: "Keeps a Latchkey of its own busy for a while, and looks whether it holds on to anything.",
  entries: {
    minutes: option("N", "how long; up to four times as long until memory is flat", numberOfAtLeast(0.1), 10),
    seed: seed("for what is left to chance", numberOfAtLeast(0)),
    faults: flag("Redis is cut off and PostgreSQL restarted now and then, in a part of the first half"),
    leak: option(
      "bytes",
      "makes the service keep so much for every 100 HTTP requests, to see that this is found",
      numberOfAtLeast(0),
      0,
    ),
    buffers: flag("what --leak names is kept in Buffers, outside of the heap"),
    json: flag("the report as JSON"),
  },
  failsIf: "memory grows, something is left over, or a call is not answered as it must be",
});
