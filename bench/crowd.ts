import type { Bench } from "./bench.js";
import { fill } from "./data/fill.js";
import { createPopulation, type Numbers, type Population } from "./data/population.js";
import { httpConnections, verifyRequest } from "./http-verify.js";
import { type Latchkey, startLatchkey } from "./latchkey.js";
import { type HttpRequest, openHttpLoad } from "./load/http.js";
import { runRound, type Side } from "./rounds.js";

/** A Latchkey with more keys than could be made through its protocols. */
export interface Crowd {
  readonly population: Population;
  readonly latchkey: Latchkey;
  /** The caller of a key's workspace has it verified. */
  request(key: number): HttpRequest;
  load(next: () => HttpRequest): Promise<Side>;
}

/** A database that is filled. */
export interface Filled {
  readonly population: Population;
  readonly databaseUrl: string;
}

export async function fillDatabase(bench: Bench, numbers: Numbers): Promise<Filled> {
  const population = createPopulation("benchmark", numbers);
  const databaseUrl = await bench.createDatabase();
  await fill(databaseUrl, population, (table, rows) => bench.progress(`${rows.toLocaleString("en-US")} ${table}`));
  return { population, databaseUrl };
}

/** Starts Latchkey on a database that is filled. */
export async function startCrowd(bench: Bench, filled: Filled, env: NodeJS.ProcessEnv = {}): Promise<Crowd> {
  const { population, databaseUrl } = filled;
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

/** A million keys in ten thousand workspaces, or a tenth of all that where it has to be quick. */
export function million({ quick }: Pick<Bench, "quick">): Numbers & { readonly word: string } {
  return quick
    ? { keys: 20_000, workspaces: 1_000, word: "20,000" }
    : { keys: 1_000_000, workspaces: 10_000, word: "1,000,000" };
}

/** Gives one after the other, and knows how many were given so far. */
export function counted<T>(give: (number: number) => T) {
  let given = 0;
  return {
    next: () => give(given++),
    get given() {
      return given;
    },
  };
}

/** Has a load go on until so many requests were given. */
export async function runUntil(
  side: Side,
  requests: { readonly given: number },
  count: number,
  progress: Bench["progress"],
): Promise<void> {
  while (requests.given < count) {
    progress(
      `${side.name}: ${requests.given.toLocaleString("en-US")} of ${count.toLocaleString("en-US")} were verified`,
    );
    await runRound(side, 2);
  }
}
