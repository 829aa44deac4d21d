import { readSamples, total } from "../../test/support/metric-samples.js";
import type { Bench } from "../bench.js";
import type { Latchkey } from "../latchkey.js";
import { percentile } from "../statistics.js";
import { keepBusy, type Offered, offer } from "./offer.js";
import type { Subject } from "./subjects.js";

/** The figures of one load. */
export interface Phase {
  /** The offered load as a fraction of the capacity. Undefined: a closed loop, as much as was served. */
  readonly share: number | undefined;
  readonly offeredPerSecond: number;
  readonly servedPerSecond: number;
  readonly shedPerSecond: number;
  /**
   * Calls shed because of overload, as the service counts them. A busy machine may also cost the service its lease, and
   * clients cannot distinguish the two.
   */
  readonly shed: number;
  /** Latency of served calls, in milliseconds from their due time. */
  readonly p50: number;
  readonly p99: number;
  /** The maximum delay between a call's due time and its start. */
  readonly latest: number;
  /** Resident memory of the service at the end of each part of the phase, in MiB. */
  readonly memory: readonly number[];
}

/** The behaviour of one operation under overload. */
export interface Measured {
  readonly name: string;
  readonly title: string;
  /** Calls per second in a closed loop. */
  readonly capacity: number;
  /** The phase of that closed loop: the service is saturated but not overloaded. The overload is compared with it. */
  readonly busy: Phase;
  readonly half: Phase;
  readonly overload: Phase;
  /** Right after the overload. */
  readonly afterwards: Phase;
}

/** The offered loads as fractions of the capacity. */
const shares = { half: 0.5, overload: 2, afterwards: 0.5 };

/** Calls in flight in the closed loop. */
const closedLoopCalls = 128;

/** Memory samples per phase. */
const memorySamples = 4;

/** @param overload the offered load in the overload phase, as a fraction of the capacity */
export async function measure(
  subject: Subject,
  bench: Bench,
  seconds: number,
  overload = shares.overload,
): Promise<Measured> {
  const { latchkey, clients } = await subject.open(bench);
  bench.progress("warm-up");
  await keepBusy(clients, closedLoopCalls, bench.pace.warmUpSeconds);
  bench.progress("measuring the capacity");
  const busy = await runPhase(latchkey, seconds, undefined, () => keepBusy(clients, closedLoopCalls, seconds));
  const capacity = busy.servedPerSecond;
  const run = (share: number) => {
    bench.progress(`${share} of ${Math.round(capacity)} calls a second`);
    return runPhase(latchkey, seconds, share, () => offer(clients, capacity * share, seconds));
  };
  return {
    name: subject.name,
    title: subject.title,
    capacity,
    busy,
    half: await run(shares.half),
    overload: await run(overload),
    afterwards: await run(shares.afterwards),
  };
}

async function runPhase(
  latchkey: Latchkey,
  seconds: number,
  share: number | undefined,
  load: () => Promise<Offered>,
): Promise<Phase> {
  const { server } = latchkey;
  const readShed = async () => total(await readSamples(latchkey), "latchkey_shed_total");
  const shedBefore = await readShed();
  const memory: number[] = [];
  const sampleMemory = () => memory.push(server.usage().residentBytes / 2 ** 20);
  const samplingTimer = setInterval(sampleMemory, (seconds * 1_000) / memorySamples);
  try {
    const offered = await load();
    sampleMemory();
    return { share, memory, shed: (await readShed()) - shedBefore, ...figuresOf(offered) };
  } finally {
    clearInterval(samplingTimer);
    server.emptyLog();
  }
}

function figuresOf({ served, refused, maxDelayMs, seconds }: Offered) {
  return {
    latest: maxDelayMs,
    offeredPerSecond: (served.length + refused) / seconds,
    servedPerSecond: served.length / seconds,
    shedPerSecond: refused / seconds,
    p50: percentile(served, 0.5),
    p99: percentile(served, 0.99),
  };
}
