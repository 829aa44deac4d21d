import type { Bench } from "./bench.js";
import { fill } from "./data/fill.js";
import { createPopulation, type Numbers, type Population } from "./data/population.js";
import { httpConnections, verifyRequest } from "./http-verify.js";
import { type Latchkey, startLatchkey } from "./latchkey.js";
import { type HttpRequest, openHttpLoad } from "./load/http.js";
import { runRound, type Side } from "./rounds.js";

/** A Latchkey with more keys than its own API could create. */
export interface Dataset {
  readonly population: Population;
  readonly latchkey: Latchkey;
  /** A request that verifies a key, sent by the caller of the key's workspace. */
  request(key: number): HttpRequest;
  load(next: () => HttpRequest): Promise<Side>;
}

/** A database filled with a population. */
export interface FilledDatabase {
  readonly population: Population;
  readonly databaseUrl: string;
}

/** The seed of all populations. */
export const populationSeed = "benchmark";

export async function fillDatabase(bench: Bench, numbers: Numbers): Promise<FilledDatabase> {
  const population = createPopulation(populationSeed, numbers);
  const databaseUrl = await bench.createDatabase();
  await fill(databaseUrl, population, (table, rows) => bench.progress(`${rows.toLocaleString("en-US")} ${table}`));
  return { population, databaseUrl };
}

/** Starts Latchkey on a filled database. */
export async function startWithDataset(
  bench: Bench,
  database: FilledDatabase,
  env: NodeJS.ProcessEnv = {},
): Promise<Dataset> {
  const { population, databaseUrl } = database;
  const name = `${population.keys.toLocaleString("en-US")} keys`;
  const latchkey = await startLatchkey(bench, { name, env: { DATABASE_URL: databaseUrl, ...env } });
  const callers = Array.from({ length: population.workspaces }, (_, number) => population.secret(number).plaintext);

  return {
    population,
    latchkey,
    request(key) {
      const secret = population.secret(key).plaintext;
      return verifyRequest(callers[population.callerOf(key)] ?? "", { keyId: population.keyId(key), secret });
    },
    async load(next) {
      const { server, httpPort: port } = latchkey;
      const load = await openHttpLoad({ port, connections: httpConnections, next });
      bench.defer(() => load.close());
      return { name, server, load };
    },
  };
}

/** A million keys in ten thousand workspaces; fewer of both in a quick run. */
export function millionKeys({ quick }: Pick<Bench, "quick">): Numbers & { readonly label: string } {
  return quick
    ? { keys: 20_000, workspaces: 1_000, label: "20,000" }
    : { keys: 1_000_000, workspaces: 10_000, label: "1,000,000" };
}

/** Produces items one after the other and counts them. */
export function counted<T>(create: (index: number) => T) {
  let count = 0;
  return {
    next: () => create(count++),
    get count() {
      return count;
    },
  };
}

/** Runs a load until it has sent this many requests. */
export async function runUntil(
  side: Side,
  requests: { readonly count: number },
  total: number,
  progress: Bench["progress"],
): Promise<void> {
  while (requests.count < total) {
    progress(`${side.name}: verified ${requests.count.toLocaleString("en-US")} of ${total.toLocaleString("en-US")}`);
    await runRound(side, 2);
  }
}
