import { parseArgs } from "node:util";
import { brokenDesigns } from "./designs.js";
import { type FaultKind, faultKinds } from "./faults.js";

/** What a round is to be like. */
export interface Options {
  readonly minutes: number;
  readonly seed: number;
  readonly replicas: number;
  /** Calls per second that are aimed at. */
  readonly rate: number;
  readonly design: string | undefined;
  readonly faults: readonly FaultKind[];
  readonly json: boolean;
}

export const usage = `Usage: npm run faults -- [options]

  --minutes N    how long (1)
  --seed N       which faults come when; the same seed, the same faults
  --replicas N   how many processes of the service (3)
  --rate N       calls per second to aim at (1500); the round fails below two thirds of it
  --only TEXT    only faults with this in their name, such as redis
  --design NAME  a broken design in place of the sound one: ${brokenDesigns.join(", ")}
  --json         the summary as JSON
`;

/** Reads the command line; what is wrong with it is thrown as a sentence. */
export function readOptions(args: readonly string[]): Options | "help" {
  const { values } = parseArgs({
    args: [...args],
    options: {
      minutes: { type: "string", default: "1" },
      seed: { type: "string", default: `${Date.now() % 1_000_000}` },
      replicas: { type: "string", default: "3" },
      rate: { type: "string", default: "1500" },
      only: { type: "string", default: "" },
      design: { type: "string" },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return "help";
  const { design, only, json } = values;
  if (design !== undefined && !brokenDesigns.includes(design)) {
    throw new Error(`--design must be one of: ${brokenDesigns.join(", ")}`);
  }
  const faults = faultKinds.filter(({ name }) => name.includes(only));
  if (faults.length === 0) throw new Error(`no fault has "${only}" in its name`);
  return {
    minutes: positive("minutes", values.minutes),
    seed: positive("seed", values.seed),
    replicas: positive("replicas", values.replicas),
    rate: positive("rate", values.rate),
    design,
    faults,
    json,
  };
}

function positive(name: string, text: string): number {
  const number = Number(text);
  if (!(number > 0)) throw new Error(`--${name} must be a number above 0, not ${text}`);
  return number;
}
