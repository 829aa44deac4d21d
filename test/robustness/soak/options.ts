import { createCommandLine, flag, option, seed } from "../../../commands/command-line.js";
import { numberOfAtLeast } from "../../../commands/kinds.js";

/** The options of a soak. Reports wrong usage and requests for help to the user, and throws. */
export const { read: readOptions } = createCommandLine({
  name: "soak",
  about: "Starts a service, runs it under load, and checks that it leaks no memory, connections, timers or listeners.",
  entries: {
    minutes: option("N", "minimum duration; extended up to four times until memory is flat", numberOfAtLeast(0.1), 10),
    seed: seed("for random choices", numberOfAtLeast(0)),
    faults: flag("disconnect Redis and restart PostgreSQL from time to time in the first half"),
    leak: option(
      "bytes",
      "make the service leak this much for every 100 HTTP requests, to test the detection",
      numberOfAtLeast(0),
      0,
    ),
    buffers: flag("leak Buffers, outside of the heap, instead of objects"),
    json: flag("print the report as JSON"),
  },
  failsIf: "memory grows, connections, timers or listeners leak, or a call has an unexpected result",
});
