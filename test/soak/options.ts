import { parseArgs } from "node:util";

/** What a soak is to be like. */
export interface Options {
  readonly minutes: number;
  readonly seed: number;
  readonly faults: boolean;
  readonly leakBytes: number;
  readonly json: boolean;
}

export const usage = `Usage: npm run soak -- [options]

  --minutes N   how long (10)
  --seed N      for what is left to chance
  --faults      Redis is cut off and PostgreSQL restarted now and then, in a part of the first half
  --leak BYTES  makes the service keep so much for every 100 HTTP requests, to see that this is found
  --json        the report as JSON
`;

/** Reads the command line; what is wrong with it is thrown as a sentence. */
export function readOptions(args: readonly string[]): Options | "help" {
  const { values } = parseArgs({
    args: [...args],
    options: {
      minutes: { type: "string", default: "10" },
      seed: { type: "string", default: `${Date.now() % 1_000_000}` },
      faults: { type: "boolean", default: false },
      leak: { type: "string", default: "0" },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return "help";
  return {
    minutes: atLeast("minutes", values.minutes, 0.1),
    seed: atLeast("seed", values.seed, 0),
    faults: values.faults,
    leakBytes: atLeast("leak", values.leak, 0),
    json: values.json,
  };
}

function atLeast(name: string, text: string, least: number): number {
  const number = Number(text);
  if (!(number >= least)) throw new Error(`--${name} must be a number, at least ${least}, not ${text}`);
  return number;
}
