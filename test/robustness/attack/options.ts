import { createCommandLine, flag, parts } from "../../../commands/command-line.js";
import { attacks } from "./attacks.js";

/** Which attacks to run. Reports wrong usage and requests for help to the user, and throws. */
export const { read: readOptions } = createCommandLine({
  name: "attack",
  about: "Attacks a Latchkey of its own, on the loopback alone, and shows what it withstood.",
  entries: {
    attacks: parts("attack", attacks),
    json: flag("the results as JSON"),
  },
  failsIf: "an attack succeeds",
});
