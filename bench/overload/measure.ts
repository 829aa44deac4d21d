import { readSamples, total } from "../../test/support/metric-samples.js";
import type { Bench } from "../bench.js";
import type { Latchkey } from "../latchkey.js";
import { percentile } from "../statistics.js";
import { keepBusy, type Offered, offer } from "./offer.js";
import type { Subject } from "./subjects.js";

/** What one load came to. */
export interface Phase {
  /** How much was asked, as a share of the capacity; undefined: as much as was answered. */
  readonly share: number | undefined;
  readonly offeredPerSecond: number;
  readonly servedPerSecond: number;
  readonly turnedAwayPerSecond: number;
  /**
   * What the service says that it turned away because it was asked too much. A machine that is too busy may also cost it
   * its lease, and its clients cannot tell that apart.
   */
  readonly shed: number;
  /** Of the calls that were served, in milliseconds from when they were due. */
  readonly p50: number;
  readonly p99: number;
  /** How late the latest call was made. */
  readonly latest: number;
  /** Resident memory of the service at the end of each part of the phase, in MiB. */
  readonly memory: readonly number[];
}

/** How one operation fares under more than it can take. */
export interface Measured {
  readonly name: string;
  readonly title: string;
  /** What is served in a second to clients that ask as fast as they are answered. */
  readonly capacity: number;
  /** The same clients: the service is just busy, and nobody asks for more. What the overload is held against. */
  readonly busy: Phase;
  readonly half: Phase;
  readonly overload: Phase;
  /** Right after the overload. */
  readonly afterwards: Phase;
}

/** How much is asked, as shares of the capacity. */
const shares = { half: 0.5, overload: 2, afterwards: 0.5 };

/** How many calls are under way of clients that ask as fast as they are answered. */
const callers = 128;

/** A phase is measured in so many parts, between which the memory is read. */
const parts = 4;

/** @param overload how much is asked at most, as a share of the capacity */
export async function measure(
  subject: Subject,
  bench: Bench,
  seconds: number,
  overload = shares.overload,
): Promise<Measured> {
  const { latchkey, clients } = await subject.open(bench);
  bench.progress("warm-up");
  await keepBusy(clients, callers, bench.pace.warmUpSeconds);
  bench.progress("the capacity");
  const busy = await runPhase(latchkey, seconds, undefined, () => keepBusy(clients, callers, seconds));
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
  const look = () => memory.push(server.usage().residentBytes / 2 ** 20);
  const looking = setInterval(look, (seconds * 1_000) / parts);
  try {
    const offered = await load();
    look();
    return { share, memory, shed: (await readShed()) - shedBefore, ...figuresOf(offered) };
  } finally {
    clearInterval(looking);
    server.emptyLog();
  }
}

function figuresOf({ served, turnedAway, latest, seconds }: Offered) {
  return {
    latest,
    offeredPerSecond: (served.length + turnedAway) / seconds,
    servedPerSecond: served.length / seconds,
    turnedAwayPerSecond: turnedAway / seconds,
    p50: percentile(served, 0.5),
    p99: percentile(served, 0.99),
  };
}
