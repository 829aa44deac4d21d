import type { Bench } from "../bench.js";
import { counted, type Filled, fillDatabase, million, runUntil, startCrowd } from "../crowd.js";
import type { Line, Row } from "../row.js";
import { type Spread, spreadOf } from "../statistics.js";

const mebibyte = 1024 * 1024;

/** How often it is looked at. */
const sampleEveryMs = 100;

/** How much memory a process takes that has seen more keys than it may hold. */
export const memory: Row = {
  name: "memory",
  title: "resident memory while 1,000,000 distinct keys are verified",
  async measure(bench) {
    const filled = await fillDatabase(bench, million(bench));
    // To be quick there are not enough keys to fill the default.
    return [await measureWith(bench, filled, bench.quick ? 8 : 128)];
  },
};

/**
 * What a process may take: what is resident before the first call; what it holds, and as much again for garbage that V8
 * lets lie and gaps between what lives; and for the work itself, where the youngest objects alone have 48 MiB.
 */
function mostMb(idleMb: number, cacheMb: number): number {
  return Math.round(idleMb + 2 * cacheMb + 130);
}

async function measureWith(bench: Bench, filled: Filled, cacheMb: number): Promise<Line> {
  const { keys } = filled.population;
  const word = keys.toLocaleString("en-US");
  const { latchkey, load, request } = await startCrowd(bench, filled, { CACHE_MB: `${cacheMb}` });
  const { server } = latchkey;
  const residentMb = () => server.usage().residentBytes / mebibyte;
  const idleMb = residentMb();

  const distinct = counted((number) => request(number % keys));
  const side = await load(distinct.next);
  const samples: number[] = [];
  const sampling = setInterval(() => samples.push(residentMb()), sampleEveryMs);
  try {
    await runUntil(side, distinct, keys, bench.progress);
  } finally {
    clearInterval(sampling);
  }
  const endMb = residentMb();
  await server.stop();

  const once = (value: number): Spread => spreadOf([value]);
  const most = Math.max(...samples);
  return {
    title: `resident memory while ${word} distinct keys are verified, CACHE_MB=${cacheMb}`,
    unit: "MiB",
    value: once(most),
    goal: { atMost: mostMb(idleMb, cacheMb) },
    sides: [
      { name: server.name, figures: { "idle, MiB": once(idleMb), "most, MiB": once(most), "end, MiB": once(endMb) } },
    ],
    notes: ["the goal: what is resident before the first call, twice CACHE_MB, and 130 MiB for the work itself"],
  };
}
