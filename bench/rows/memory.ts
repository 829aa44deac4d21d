import type { Bench } from "../bench.js";
import { counted, million, runUntil, startCrowd } from "../crowd.js";
import { runRound } from "../rounds.js";
import type { Line, Row } from "../row.js";
import { spreadOf } from "../statistics.js";

const mebibyte = 1024 * 1024;

/** How often it is looked at, in milliseconds. */
const every = 100;

/** How much memory a process takes that has seen more keys than it may hold. */
export const memory: Row = {
  name: "memory",
  title: "resident memory while 1,000,000 distinct keys are verified",
  async measure(bench) {
    return [await measureWith(bench, 128), await measureWith(bench, 8)];
  },
};

async function measureWith(bench: Bench, cacheMb: number): Promise<Line> {
  const numbers = million(bench);
  const crowd = await startCrowd(bench, numbers, { CACHE_MB: `${cacheMb}` });
  const { server } = crowd.latchkey;
  const residentMb = () => server.usage().residentBytes / mebibyte;
  const idle = residentMb();

  const one = crowd.request(numbers.workspaces);
  const ofOne = await crowd.load(() => one);
  await runRound(ofOne, bench.pace.warmUpSeconds);
  const warm = residentMb();

  const distinct = counted((number) => crowd.request(number % numbers.keys));
  const ofAll = await crowd.load(distinct.next);
  const samples: number[] = [];
  const sampling = setInterval(() => samples.push(residentMb()), every);
  try {
    await runUntil(ofAll, distinct, numbers.keys, bench.progress);
  } finally {
    clearInterval(sampling);
  }
  const most = Math.max(...samples);
  const figures = {
    "idle, MiB": idle,
    "after one key, MiB": warm,
    "at most, MiB": most,
    "at the end, MiB": residentMb(),
  };
  return {
    title: `resident memory while ${numbers.word} distinct keys are verified, CACHE_MB=${cacheMb}`,
    unit: "MiB",
    value: spreadOf([most]),
    goal: { atMost: Math.round(warm + 2 * cacheMb + 50) },
    sides: [
      {
        name: server.name,
        figures: Object.fromEntries(Object.entries(figures).map(([name, value]) => [name, spreadOf([value])])),
      },
    ],
    notes: [],
  };
}
