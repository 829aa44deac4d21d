import { createCommandLine, flag, parts } from "../../../commands/command-line.js";
import { attacks } from "./attacks.js";

/** Which attacks to run. Reports wrong usage and requests for help to the user, and throws. */
export const { read: readOptions } = createCommandLine({
  name: "attack",
  about: "Starts a service on loopback, attacks it, and reports which attacks it withstood.",
  entries: {
    attacks: parts("attack", attacks),
    json: flag("print the results as JSON"),
  },
  failsIf: "an attack succeeds",
});
