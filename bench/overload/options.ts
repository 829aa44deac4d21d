import { createCommandLine, flag, option, parts } from "../../commands/command-line.js";
import { numberOfAtLeast } from "../../commands/kinds.js";
import { subjects } from "./subjects.js";

const { read } = createCommandLine({
  name: "overload",
  about: "Measures the capacity of a Latchkey, then offers half of it, twice of it, and half again.",
  entries: {
    operations: parts("operation", subjects),
    seconds: option("N", "duration of each load in seconds", numberOfAtLeast(1), 10),
    json: flag("print the report as JSON"),
  },
  failsIf: "a guarantee does not hold or any response is neither a success nor a proper refusal",
});

/** Reads the command line. Wrong usage and --help are printed, and thrown as an error. */
export function readOptions(args: readonly string[]) {
  const { operations, ...options } = read(args);
  const chosen = subjects.filter((subject) => operations.length === 0 || operations.includes(subject));
  return { ...options, subjects: chosen };
}
