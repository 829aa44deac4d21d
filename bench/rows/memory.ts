import type { Bench } from "../bench.js";
import { counted, type FilledDatabase, fillDatabase, millionKeys, runUntil, startWithDataset } from "../dataset.js";
import type { Line, Row } from "../row.js";
import { type Spread, spreadOf } from "../statistics.js";

const mebibyte = 1024 * 1024;

/** How often the resident memory is sampled. */
const sampleIntervalMs = 100;

/** The memory of a process that has verified more keys than its cache can hold. */
export const memory: Row = {
  name: "memory",
  title: "resident memory while 1,000,000 distinct keys are verified",
  async measure(bench) {
    const database = await fillDatabase(bench, millionKeys(bench));
    // A quick run has too few keys to fill a cache of the default size.
    return [await measureWith(bench, database, bench.quick ? 8 : 128)];
  },
};

/**
 * The maximum resident memory of a process. It is the sum of the memory before the first call, twice the cache (its
 * entries, and as much again for uncollected garbage and heap fragmentation), and 130 MiB for the work itself. V8's
 * young generation alone has 48 MiB of these.
 */
function maxMb(idleMb: number, cacheMb: number): number {
  return Math.round(idleMb + 2 * cacheMb + 130);
}

async function measureWith(bench: Bench, database: FilledDatabase, cacheMb: number): Promise<Line> {
  const { keys } = database.population;
  const label = keys.toLocaleString("en-US");
  const { latchkey, load, request } = await startWithDataset(bench, database, { CACHE_MB: `${cacheMb}` });
  const { server } = latchkey;
  const residentMb = () => server.usage().residentBytes / mebibyte;
  const idleMb = residentMb();

  const distinct = counted((number) => request(number % keys));
  const side = await load(distinct.next);
  const samples: number[] = [];
  const sampling = setInterval(() => samples.push(residentMb()), sampleIntervalMs);
  try {
    await runUntil(side, distinct, keys, bench.progress);
  } finally {
    clearInterval(sampling);
  }
  const endMb = residentMb();
  await server.stop();

  const single = (value: number): Spread => spreadOf([value]);
  const peakMb = Math.max(...samples);
  return {
    title: `resident memory while ${label} distinct keys are verified, CACHE_MB=${cacheMb}`,
    unit: "MiB",
    value: single(peakMb),
    goal: { atMost: maxMb(idleMb, cacheMb) },
    sides: [
      {
        name: server.name,
        figures: { "idle, MiB": single(idleMb), "peak, MiB": single(peakMb), "end, MiB": single(endMb) },
      },
    ],
    notes: [
      "the goal is the resident memory before the first call, plus twice CACHE_MB, plus 130 MiB for the work itself",
    ],
  };
}
