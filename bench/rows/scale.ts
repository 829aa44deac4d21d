import { createRandom } from "../../test/verification/faults/random.js";
import type { Bench } from "../bench.js";
import { type Crowd, counted, fillDatabase, million, runUntil, startCrowd } from "../crowd.js";
import { compareThroughput, type Side } from "../rounds.js";
import type { Row } from "../row.js";

/** How many keys are in use at a time. */
const workingSet = 10_000;

/** What the number of keys costs: while those in use are held, and when hardly any is. */
export const scale: Row = {
  name: "scale",
  title: "verifyKey with 1,000,000 keys in 10,000 workspaces / with 1,000 keys",
  async measure(bench) {
    const numbers = million(bench);
    const { keys, workspaces } = numbers;
    const many = await startCrowd(bench, await fillDatabase(bench, numbers));
    const few = await startCrowd(bench, await fillDatabase(bench, { keys: 1_000, workspaces: 10 }));
    const ours = await heldSide(bench, many, workingSet);
    const theirs = await heldSide(bench, few, 990);
    const title = `verifyKey with ${numbers.word} keys in ${workspaces.toLocaleString("en-US")} workspaces / with 1,000 keys`;
    const held = await compareThroughput(bench, { title, goal: { atLeast: 0.95 } }, ours, theirs);

    const chance = createRandom(1);
    const anywhere = await many.load(() => many.request(Math.floor(chance.between(workspaces, keys))));
    const atRandom = await compareThroughput(bench, { title: "the same with keys at random" }, anywhere, theirs);
    return [
      { ...held, notes: ["10,000 keys are in use, of all workspaces; who asks is another key", ...held.notes] },
      { ...atRandom, notes: ["most are not held and come from Postgres; there is no Redis", ...atRandom.notes] },
    ];
  },
};

/**
 * Verifies so many keys again and again; each of them is cached by now. Not in the order of their numbers: with ten callers on
 * fifty connections, each connection would bring the same credential every time, and only of a few workspaces.
 */
async function heldSide(bench: Bench, crowd: Crowd, count: number): Promise<Side> {
  const inOrder = Array.from({ length: count }, (_, number) => crowd.request(crowd.population.workspaces + number));
  const requests = createRandom(1).shuffle(inOrder);
  const inTurn = counted((number) => requests[number % count] as (typeof requests)[number]);
  const side = await crowd.load(inTurn.next);
  await runUntil(side, inTurn, count, bench.progress);
  return side;
}
