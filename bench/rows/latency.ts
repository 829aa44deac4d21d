import { httpConnections, httpSide, startBareVerify, verifyRequests } from "../http-verify.js";
import { createFixture, startLatchkey } from "../latchkey.js";
import { inTurn } from "../load/http.js";
import { type OpenLoop, openOpenLoop } from "../load/open-loop.js";
import { runRound, takeTurns } from "../rounds.js";
import type { Row, SideFigures } from "../row.js";
import { pairRatios, percentile, spreadOf } from "../statistics.js";

const title = "p99 of verifyKey at half the maximum rate / bare Fastify at the same rate";

/** Shorter rounds have too few calls for a meaningful p99. */
const minRoundSeconds = 1;

/** For how long the maximum rate is measured before each pair of rounds. */
const maxRateSeconds = 1;

/** For how long both sides then have load that does not count: Latchkey has just been saturated, and the other was idle. */
const settleSeconds = 1;

/** Latency below saturation. Both sides get the same rate, half of Latchkey's maximum at the time. */
export const latency: Row = {
  name: "latency",
  title,
  async measure(bench) {
    const { warmUpSeconds, pairs } = bench.pace;
    const roundSeconds = Math.max(bench.pace.roundSeconds, minRoundSeconds);
    const latchkey = await startLatchkey(bench);
    const fixture = await createFixture(latchkey);
    const bare = await startBareVerify(bench, latchkey, fixture);
    const requests = verifyRequests(fixture);

    const maxRateSide = await httpSide(bench, { ...latchkey, port: latchkey.httpPort }, requests);
    bench.progress("warm-up, Latchkey");
    await runRound(maxRateSide, warmUpSeconds);
    const open = async (port: number, next: Parameters<typeof openOpenLoop>[0]["next"]): Promise<OpenLoop> => {
      const loop = await openOpenLoop({ port, connections: 2 * httpConnections, next });
      bench.defer(() => loop.close());
      return loop;
    };
    const ours = await open(latchkey.httpPort, inTurn(requests));
    const theirs = await open(bare.port, inTurn(bare.requests));
    /** Measures the maximum rate anew: at a rate from a faster moment of the machine, Latchkey could be close to saturation. */
    const halfRate = async () => (await runRound(maxRateSide, maxRateSeconds)).callsPerSecond / 2;
    const bothAt = (rate: number, seconds: number) =>
      takeTurns(
        seconds,
        (turn) => ours.run(rate, turn),
        (turn) => theirs.run(rate, turn),
      );
    bench.progress("warm-up, both sides");
    await bothAt(await halfRate(), warmUpSeconds);
    const rates: number[] = [];
    const rounds: { ours: number[][]; theirs: number[][] } = { ours: [], theirs: [] };
    for (let pair = 1; pair <= pairs; pair++) {
      bench.progress(`pair ${pair} of ${pairs}`);
      const rate = await halfRate();
      await bothAt(rate, settleSeconds);
      const turns = await bothAt(rate, roundSeconds);
      rates.push(rate);
      rounds.ours.push(turns.ours.flat());
      rounds.theirs.push(turns.theirs.flat());
    }
    const { min, max } = spreadOf(rates);
    return [
      {
        title,
        goal: { atMost: 2 },
        value: pairRatios(p99Of(rounds.ours), p99Of(rounds.theirs)),
        sides: [figuresOf("Latchkey", rounds.ours), figuresOf("bare Fastify", rounds.theirs)],
        notes: [
          `in each pair, both sides received the same rate on a fixed schedule, regardless of their responses: from ${Math.round(min)} to ${Math.round(max)} calls per second`,
        ],
      },
    ];
  },
};

function p99Of(rounds: readonly number[][]): number[] {
  return rounds.map((round) => percentile(round, 0.99));
}

function figuresOf(name: string, rounds: readonly number[][]): SideFigures {
  const at = (fraction: number) => spreadOf(rounds.map((round) => percentile(round, fraction)));
  return { name, figures: { "p50, ms": at(0.5), "p99, ms": at(0.99), "p99.9, ms": at(0.999) } };
}
