import { createCreditSpender, spenderPool } from "../../src/credits/spender.js";
import { createCreditsStore } from "../../src/credits/store.js";
import { openDatabase } from "../../src/storage/postgres/database.js";
import type { Bench } from "../bench.js";
import { httpSide, verifyRequests } from "../http-verify.js";
import { createFixture, startLatchkey } from "../latchkey.js";
import { inTurn } from "../load/http.js";
import { createClosedLoop } from "../load/load.js";
import { compareThroughput } from "../rounds.js";
import type { Line, Row } from "../row.js";
import { spreadOf } from "../statistics.js";

const title = "HTTP keys.verifyKey of a key with credits / the same without credits, 64 in flight";

/** Requests in flight in the comparison. */
const connections = 64;

/** Spends in flight while durable spends are counted: enough for full statements. */
const spendsInFlight = 2_000;

/** Each verification of a key with credits waits for a durable commit, which it shares with the others in flight. */
export const credits: Row = {
  name: "credits",
  title,
  async measure(bench) {
    const latchkey = await startLatchkey(bench);
    const plain = await createFixture(latchkey);
    const limited = await createFixture(latchkey, 1_000, { credits: { remaining: 1e12 } });
    const target = { ...latchkey, port: latchkey.httpPort };
    const ours = await httpSide(bench, target, verifyRequests(limited).slice(0, plain.keys.length), connections);
    const theirs = await httpSide(bench, target, verifyRequests(plain), connections);
    const compared = await compareThroughput(
      bench,
      { title, goal: { atLeast: 0.4 } },
      { ...ours, name: "with credits" },
      { ...theirs, name: "without credits" },
    );
    const keyIds = limited.keys.map(({ keyId }) => keyId);
    return [
      compared,
      await countSpends(bench, "durable spends a second on one key", latchkey.databaseUrl, keyIds.slice(0, 1)),
      await countSpends(bench, "durable spends a second on 1,000 keys", latchkey.databaseUrl, keyIds),
    ];
  },
};

/** Spends as fast as PostgreSQL confirms, without the HTTP calls around it. */
async function countSpends(bench: Bench, title: string, databaseUrl: string, keyIds: string[]): Promise<Line> {
  const { warmUpSeconds, roundSeconds, pairs } = bench.pace;
  const db = openDatabase(databaseUrl, spenderPool);
  bench.defer(() => db.close());
  const spender = createCreditSpender(
    createCreditsStore(db, () => new Date("9999-12-31")),
    () => {},
  );
  const call = { requestId: "bench", deadline: Number.POSITIVE_INFINITY, workspaceId: "bench" };
  const nextKey = inTurn(keyIds);
  const round = async (seconds: number) => {
    const loop = createClosedLoop();
    const spend = (): void => {
      spender
        .spend(call, nextKey(), 1, () => true)
        .then((outcome) => {
          if (!outcome?.spent) loop.failed(new Error("a key has no credits left"));
          else if (loop.succeeded()) spend();
        }, loop.failed);
    };
    const { calls, seconds: took } = await loop.run(seconds, spendsInFlight, () => {
      for (let started = 0; started < spendsInFlight; started++) spend();
    });
    return calls / took;
  };
  bench.progress(`warm-up, ${title}`);
  await round(warmUpSeconds);
  const rounds: number[] = [];
  for (let number = 1; number <= pairs; number++) {
    bench.progress(`round ${number} of ${pairs}, ${title}`);
    rounds.push(await round(roundSeconds));
  }
  const notes = [
    `${spendsInFlight.toLocaleString("en-US")} spends in flight, by the service's own code without its ports`,
  ];
  return { title, unit: "spends/s", value: spreadOf(rounds), sides: [], notes };
}
