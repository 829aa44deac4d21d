import { buildPage } from "../../src/pagination.js";
import type { Bench } from "../bench.js";
import { fillDatabase, million, startCrowd } from "../crowd.js";
import { type HttpRequest, openAsker, postRequest } from "../load/http.js";
import type { Line, Row } from "../row.js";
import { pairRatios, spreadOf } from "../statistics.js";

/** How often each page is asked for in a round. */
const calls = 100;

/** A list that is walked to its end must not get slower on the way. */
export const lists: Row = {
  name: "lists",
  title: "listKeys, listIdentities: last page of 1,000,000 / first page",
  async measure(bench) {
    const { keys: rows, word } = million(bench);
    const { population, latchkey } = await startCrowd(
      bench,
      await fillDatabase(bench, { keys: rows, workspaces: 1, identities: rows }),
    );
    const caller = population.secret(0).plaintext;
    const line = (list: "keys" | "identities", operation: string, idOf: (number: number) => string) => {
      const path = `/v2/${list}.${operation}`;
      const page = (first: number): HttpRequest => {
        const { cursor } =
          first === 0 ? {} : buildPage(list, { limit: 1, after: "" }, [first - 1, first], idOf).pagination;
        return { bytes: postRequest(path, { limit: 100, cursor }, caller), expected: `"${idOf(first + 99)}"` };
      };
      return comparePages(
        bench,
        `${operation}: last page of ${word} / first page`,
        latchkey.httpPort,
        page(0),
        page(rows - 100),
      );
    };
    return [
      await line("keys", "listKeys", population.keyId),
      await line("identities", "listIdentities", population.identityId),
    ];
  },
};

/** How long the one and the other take, asked for in turn by one caller. */
async function comparePages(
  bench: Bench,
  title: string,
  port: number,
  first: HttpRequest,
  last: HttpRequest,
): Promise<Line> {
  const time = await openTimer(port);
  bench.defer(() => time.close());
  const round = async () => {
    const [ofFirst, ofLast]: [number[], number[]] = [[], []];
    for (let call = 0; call < calls; call++) {
      ofFirst.push(await time.ask(first));
      ofLast.push(await time.ask(last));
    }
    return { first: spreadOf(ofFirst).median, last: spreadOf(ofLast).median };
  };
  bench.progress(`${title}, warm-up`);
  await round();
  const rounds: Awaited<ReturnType<typeof round>>[] = [];
  for (let pair = 1; pair <= bench.pace.pairs; pair++) {
    bench.progress(`${title}, round ${pair} of ${bench.pace.pairs}`);
    rounds.push(await round());
  }
  const [firsts, lasts] = [rounds.map((each) => each.first), rounds.map((each) => each.last)];
  return {
    title,
    goal: { atMost: 1.3 },
    value: pairRatios(lasts, firsts),
    sides: [
      { name: "last page", figures: { "median, ms": spreadOf(lasts) } },
      { name: "first page", figures: { "median, ms": spreadOf(firsts) } },
    ],
    notes: [`100 rows a page, over HTTP; ${calls} calls of each in a round, in turn, by one caller`],
  };
}

/** A connection that tells how long each answer took, in milliseconds. */
async function openTimer(port: number) {
  let done: (error?: Error) => void = () => {};
  const asker = await openAsker(port, { answered: () => done(), failed: (error) => done(error) });
  return {
    ask: (request: HttpRequest) =>
      new Promise<number>((resolve, reject) => {
        const sentAt = performance.now();
        done = (error) => (error ? reject(error) : resolve(performance.now() - sentAt));
        asker.ask(request);
      }),
    close: asker.close,
  };
}
