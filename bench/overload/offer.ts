import { setTimeout as sleep } from "node:timers/promises";
import { createClosedLoop } from "../load/load.js";

/** What came of a load that was offered. */
export interface Offered {
  readonly seconds: number;
  /** How long each call took that was served, from when it was due, in milliseconds. */
  readonly served: readonly number[];
  readonly turnedAway: number;
  /** How much later than due the latest call was made, in milliseconds: how busy the machine was with other work. */
  readonly latest: number;
}

/** Something that calls one operation of a service. */
export interface Clients {
  /** Makes a call, and tells how it ended: served, or properly turned away. */
  call(ended: (served: boolean) => void): void;
  /** What went wrong: any answer that is neither. */
  readonly failure: Error | undefined;
  close(): void;
}

/** How long the last answers may take. */
const patienceMs = 10_000;

/**
 * Calls so often, for so long, however the answers come. Of the first second, in which a queue may form, nothing is
 * counted.
 */
export async function offer(clients: Clients, callsPerSecond: number, seconds: number): Promise<Offered> {
  const served: number[] = [];
  let turnedAway = 0;
  let underWay = 0;
  let latest = 0;
  const startedAt = performance.now();
  const countedFrom = startedAt + 1_000;
  const calls = Math.round(callsPerSecond * (seconds + 1));

  function call(due: number): void {
    underWay++;
    clients.call((wasServed) => {
      underWay--;
      if (due < countedFrom) return;
      if (wasServed) served.push(performance.now() - due);
      else turnedAway++;
    });
  }

  for (let called = 0; called < calls && !clients.failure; ) {
    const now = performance.now();
    for (; called < calls; called++) {
      const due = startedAt + (called / callsPerSecond) * 1_000;
      if (due > now) break;
      if (due >= countedFrom) latest = Math.max(latest, performance.now() - due);
      call(due);
    }
    await sleep(1);
  }
  for (const end = performance.now() + patienceMs; underWay > 0 && !clients.failure; ) {
    if (performance.now() > end) throw new Error(`${underWay} calls were never answered`);
    await sleep(5);
  }
  if (clients.failure) throw clients.failure;
  return { seconds, served, turnedAway, latest };
}

/** Has so many calls under way for so long, each answer followed by the next call. */
export async function keepBusy(clients: Clients, callers: number, seconds: number): Promise<Offered> {
  const loop = createClosedLoop();
  const served: number[] = [];
  let turnedAway = 0;
  function call(): void {
    const calledAt = performance.now();
    clients.call((wasServed) => {
      if (wasServed) served.push(performance.now() - calledAt);
      else turnedAway++;
      if (loop.answered()) call();
    });
  }
  const run = await loop.run(seconds, callers, () => {
    for (let caller = 0; caller < callers; caller++) call();
  });
  if (clients.failure) throw clients.failure;
  return { seconds: run.seconds, served, turnedAway, latest: 0 };
}
