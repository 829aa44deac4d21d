import { createRandom } from "../../test/verification/faults/random.js";
import type { Bench } from "../bench.js";
import { counted, type Dataset, fillDatabase, millionKeys, runUntil, startWithDataset } from "../dataset.js";
import { compareThroughput, type Side } from "../rounds.js";
import type { Row } from "../row.js";

/** Keys that are verified again and again. */
const workingSet = 10_000;

/** The cost of many keys: with the keys in use cached, and with almost none of them cached. */
export const scale: Row = {
  name: "scale",
  title: "verifyKey with 1,000,000 keys in 10,000 workspaces / with 1,000 keys",
  async measure(bench) {
    const numbers = millionKeys(bench);
    const { keys, workspaces } = numbers;
    const many = await startWithDataset(bench, await fillDatabase(bench, numbers));
    const few = await startWithDataset(bench, await fillDatabase(bench, { keys: 1_000, workspaces: 10 }));
    const ours = await cachedSide(bench, many, workingSet);
    const theirs = await cachedSide(bench, few, 990);
    const title = `verifyKey with ${numbers.label} keys in ${workspaces.toLocaleString("en-US")} workspaces / with 1,000 keys`;
    const cached = await compareThroughput(bench, { title, goal: { atLeast: 0.95 } }, ours, theirs);

    const generator = createRandom(1);
    const random = await many.load(() => many.request(Math.floor(generator.between(workspaces, keys))));
    const atRandom = await compareThroughput(bench, { title: "the same with random keys" }, random, theirs);
    return [
      { ...cached, notes: ["10,000 keys of all workspaces are in use; the caller is another key", ...cached.notes] },
      {
        ...atRandom,
        notes: ["most keys are not cached and are read from PostgreSQL; there is no Redis", ...atRandom.notes],
      },
    ];
  },
};

/**
 * Verifies this many keys again and again, after each was cached. The order is shuffled. In the order of their numbers,
 * with ten callers on fifty connections, each connection would always send the same credential, and only for a few
 * workspaces.
 */
async function cachedSide(bench: Bench, dataset: Dataset, count: number): Promise<Side> {
  const inOrder = Array.from({ length: count }, (_, number) => dataset.request(dataset.population.workspaces + number));
  const requests = createRandom(1).shuffle(inOrder);
  const source = counted((number) => requests[number % count] as (typeof requests)[number]);
  const side = await dataset.load(source.next);
  await runUntil(side, source, count, bench.progress);
  return side;
}
