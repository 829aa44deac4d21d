import { buildPage } from "../../src/pagination.js";
import type { Bench } from "../bench.js";
import { fillDatabase, millionKeys, startWithDataset } from "../dataset.js";
import { type HttpRequest, openHttpConnection, postRequest } from "../load/http.js";
import type { Line, Row } from "../row.js";
import { pairRatios, spreadOf } from "../statistics.js";

/** Requests for each page per round. */
const callsPerPage = 100;

/** Reading a list to its end must not become slower with each page. */
export const lists: Row = {
  name: "lists",
  title: "listKeys, listIdentities: last page of 1,000,000 / first page",
  async measure(bench) {
    const { keys: rows, label } = millionKeys(bench);
    const { population, latchkey } = await startWithDataset(
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
        `${operation}: last page of ${label} / first page`,
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

/** Compares the latency of the first and the last page, requested alternately by one caller. */
async function comparePages(
  bench: Bench,
  title: string,
  port: number,
  first: HttpRequest,
  last: HttpRequest,
): Promise<Line> {
  const timer = await openTimer(port);
  bench.defer(() => timer.close());
  const round = async () => {
    const [firstTimes, lastTimes]: [number[], number[]] = [[], []];
    for (let call = 0; call < callsPerPage; call++) {
      firstTimes.push(await timer.call(first));
      lastTimes.push(await timer.call(last));
    }
    return { first: spreadOf(firstTimes).median, last: spreadOf(lastTimes).median };
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
    notes: [`100 rows a page, over HTTP; ${callsPerPage} calls of each per round, alternating, by one caller`],
  };
}

/** Opens a connection that measures the latency of each call in milliseconds. */
async function openTimer(port: number) {
  let done: (error?: Error) => void = () => {};
  const connection = await openHttpConnection(port, { succeeded: () => done(), failed: (error) => done(error) });
  return {
    call: (request: HttpRequest) =>
      new Promise<number>((resolve, reject) => {
        const sentAt = performance.now();
        done = (error) => (error ? reject(error) : resolve(performance.now() - sentAt));
        connection.send(request);
      }),
    close: connection.close,
  };
}
