import { type CoDelOptions, createCoDel } from "./codel.js";

/** Decides which calls a process takes on: it computes on one event loop, and that is what all of them wait for. */
export interface LoadShedder {
  /** Whether a call that begins now is to be served. */
  accepts(): boolean;
}

/**
 * What is let in while a queue stands is answered soon: it waits for two or three such turns at most. A burst may take
 * two seconds: a thousand calls at once on a slow machine, or the pause of a large collection.
 */
const loopBounds: CoDelOptions = { targetMs: 25, burstMs: 2_000, intervalMs: 250 };

/** So many calls are served in a turn however long it takes: clients that ask one after the other form no endless queue. */
const fewCalls = 128;

/**
 * Watches how long the turns of the event loop last. All calls of a turn were there when it began, so one that begins
 * after 25 ms of it has waited for at least as long. It costs a look at the clock; what could tell of a single call when
 * it arrived is not to be had in Node.
 */
export function createLoadShedder(
  bounds: CoDelOptions = loopBounds,
  now: () => number = () => performance.now(),
): LoadShedder {
  const patience = createCoDel(bounds);
  let beganAt: number | undefined;
  let endedAt = Number.NEGATIVE_INFINITY;
  let limit = bounds.burstMs;
  let calls = 0;

  function endTurn(): void {
    endedAt = now();
    patience.recordWait(endedAt - (beganAt ?? endedAt), endedAt);
    beganAt = undefined;
  }

  function beginTurn(at: number): void {
    beganAt = at;
    calls = 0;
    // Nobody had asked for a while, so nobody waited.
    if (at - endedAt > bounds.targetMs) patience.recordWait(0, at);
    limit = patience.maxWait(at);
    setImmediate(endTurn);
  }

  return {
    accepts() {
      const at = now();
      if (beganAt === undefined) beginTurn(at);
      calls += 1;
      return calls <= fewCalls || at - (beganAt ?? at) <= limit;
    },
  };
}
