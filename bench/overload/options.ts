import { createCommandLine, flag, option, parts } from "../../commands/command-line.js";
import { numberOfAtLeast } from "../../commands/kinds.js";
import { subjects } from "./subjects.js";

const { read } = createCommandLine({
  name: "overload",
  about: "Keeps a Latchkey of its own just busy, then asks for half and twice of what it can answer, and half again.",
  entries: {
    operations: parts("operation", subjects),
    seconds: option("N", "how long each load lasts", numberOfAtLeast(1), 10),
    json: flag("the report as JSON"),
  },
  failsIf: "a promise does not hold or any answer is neither a success nor a proper refusal",
});

/** What is to be measured. Wrong usage and the wish for help are told to the user, and thrown. */
export function readOptions(args: readonly string[]) {
  const { operations, ...options } = read(args);
  const chosen = subjects.filter((subject) => operations.length === 0 || operations.includes(subject));
  return { ...options, subjects: chosen };
}
