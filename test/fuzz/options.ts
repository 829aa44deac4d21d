import { parseArgs } from "node:util";

/** What a run is to be like. */
export interface Options {
  readonly seed: number;
  readonly cases: number;
  readonly path: string | undefined;
  readonly json: boolean;
}

export const usage = `Usage: npm run fuzz -- [options]

  --cases N   how many (20000)
  --seed N    which; the same seed, the same cases
  --path P    one case again, by the seed and the path that were reported with it
  --json      the report as JSON
`;

/** Reads the command line; what is wrong with it is thrown as a sentence. */
export function readOptions(args: readonly string[]): Options | "help" {
  const { values } = parseArgs({
    args: [...args],
    options: {
      cases: { type: "string", default: "20000" },
      seed: { type: "string", default: `${Date.now() % 1_000_000_000}` },
      path: { type: "string" },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return "help";
  const { path, json } = values;
  if (path !== undefined && !/^\d+(:\d+)*$/.test(path)) throw new Error("--path must be numbers with colons between");
  return { cases: whole("cases", values.cases), seed: whole("seed", values.seed), path, json };
}

function whole(name: string, text: string): number {
  const number = Number(text);
  if (!Number.isSafeInteger(number) || number < 1)
    throw new Error(`--${name} must be a whole number above 0, not ${text}`);
  return number;
}
