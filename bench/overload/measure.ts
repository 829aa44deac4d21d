import type { Bench } from "../bench.js";
import type { Latchkey } from "../latchkey.js";
import { percentile } from "../statistics.js";
import { type Clients, keepBusy, type Offered, offer } from "./offer.js";
import type { Subject } from "./subjects.js";

/** What one load came to. */
export interface Phase {
  /** How much was asked, as a share of the capacity. */
  readonly share: number;
  readonly offeredPerSecond: number;
  readonly servedPerSecond: number;
  readonly turnedAwayPerSecond: number;
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
  /** Calls a second of clients that ask as fast as they are answered. */
  readonly capacity: number;
  readonly half: Phase;
  /** Near the capacity, where all is still well: what the overload is held against. */
  readonly normal: Phase;
  readonly overload: Phase;
  /** Right after the overload. */
  readonly afterwards: Phase;
}

/** How much is asked, as shares of the capacity. */
const shares = { half: 0.5, normal: 0.8, overload: 2, afterwards: 0.5 };

/** How many calls are under way of clients that ask as fast as they are answered. */
const callers = 32;

/** A phase is measured in so many parts, between which the memory is read. */
const parts = 4;

export async function measure(subject: Subject, bench: Bench, seconds: number): Promise<Measured> {
  const { latchkey, clients } = await subject.open(bench);
  bench.progress("warm-up");
  await keepBusy(clients, callers, bench.pace.warmUpSeconds);
  bench.progress("the capacity");
  const capacity = await keepBusy(clients, callers, seconds);
  const run = (share: number) => {
    bench.progress(`${share} of ${Math.round(capacity)} calls a second`);
    return runPhase(latchkey, clients, capacity * share, { share, seconds });
  };
  return {
    name: subject.name,
    title: subject.title,
    capacity,
    half: await run(shares.half),
    normal: await run(shares.normal),
    overload: await run(shares.overload),
    afterwards: await run(shares.afterwards),
  };
}

async function runPhase(
  { server }: Latchkey,
  clients: Clients,
  offeredPerSecond: number,
  { share, seconds }: { readonly share: number; readonly seconds: number },
): Promise<Phase> {
  const memory: number[] = [];
  const look = () => memory.push(server.usage().residentBytes / 2 ** 20);
  const looking = setInterval(look, (seconds * 1_000) / parts);
  try {
    const offered = await offer(clients, offeredPerSecond, seconds);
    look();
    return { share, offeredPerSecond, memory, ...figuresOf(offered) };
  } finally {
    clearInterval(looking);
    server.emptyLog();
  }
}

function figuresOf({ served, turnedAway, latest, seconds }: Offered) {
  return {
    latest,
    servedPerSecond: served.length / seconds,
    turnedAwayPerSecond: turnedAway / seconds,
    p50: percentile(served, 0.5),
    p99: percentile(served, 0.99),
  };
}
