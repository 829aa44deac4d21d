import { parseArgs } from "node:util";
import { type Subject, subjects } from "./subjects.js";

/** What is to be measured. */
export interface Options {
  readonly subjects: readonly Subject[];
  /** How long each load lasts. */
  readonly seconds: number;
  readonly json: boolean;
}

export const usage = `Usage: npm run overload -- [options] [operations]

Keeps a Latchkey of its own just busy, then asks for half and twice of what it can answer, and half again.
Operations: ${subjects.map(({ name }) => name).join(", ")}; all, if none is named.

  --seconds N    how long each load lasts (10)
  --json         the report as JSON

The exit code is 1 if a promise does not hold or any answer is neither a success nor a proper refusal, 2 for wrong usage.
`;

/** Reads the command line; what is wrong with it is thrown as a sentence. */
export function readOptions(args: readonly string[]): Options | "help" {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      seconds: { type: "string", default: "10" },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return "help";
  const unknown = positionals.find((name) => !subjects.some((subject) => subject.name === name));
  if (unknown !== undefined) throw new Error(`there is no operation ${unknown} here`);
  const seconds = Number(values.seconds);
  if (!(seconds >= 1)) throw new Error(`--seconds must be a number of at least 1, not ${values.seconds}`);
  const chosen = subjects.filter(({ name }) => positionals.length === 0 || positionals.includes(name));
  return { subjects: chosen, seconds, json: values.json };
}
