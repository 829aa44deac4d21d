import { type CoDelOptions, createCoDel } from "./codel.js";

/** Decides which calls a process accepts. All calls wait for the same event loop. */
export interface LoadShedder {
  /** Whether to serve a call that begins now. */
  accepts(): boolean;
}

/**
 * A call that is accepted during a standing queue is answered soon: it waits for at most two or three turns of 25 ms. A
 * burst may take two seconds: a thousand calls at once on a slow machine, or the pause of a large garbage collection.
 */
const defaultOptions: CoDelOptions = { targetMs: 25, burstMs: 2_000, intervalMs: 250 };

/**
 * Each turn serves this many calls, even on a slow machine: clients that send one call at a time form no endless queue. But
 * not for longer than this: there are calls that take a hundred times as long as others, and many of them would stall all
 * other clients for seconds.
 */
const minCallsPerTurn = { calls: 128, ms: 300 };

/**
 * Measures the turns of the event loop. All calls of a turn had arrived when it began, so a call that begins 25 ms into
 * the turn has waited at least that long. This costs one reading of the clock. Node does not provide the arrival time
 * of a single call.
 */
export function createLoadShedder(
  options: CoDelOptions = defaultOptions,
  now: () => number = () => performance.now(),
): LoadShedder {
  const codel = createCoDel(options);
  let beganAt: number | undefined;
  let endedAt = Number.NEGATIVE_INFINITY;
  let limit = options.burstMs;
  let calls = 0;

  function endTurn(): void {
    endedAt = now();
    codel.recordWait(endedAt - (beganAt ?? endedAt), endedAt);
    beganAt = undefined;
  }

  function beginTurn(at: number): void {
    beganAt = at;
    calls = 0;
    // No call arrived for a while, so none waited.
    if (at - endedAt > options.targetMs) codel.recordWait(0, at);
    limit = codel.maxWait(at);
    setImmediate(endTurn);
  }

  return {
    accepts() {
      const at = now();
      if (beganAt === undefined) beginTurn(at);
      calls += 1;
      const ms = at - (beganAt ?? at);
      return ms <= limit || (calls <= minCallsPerTurn.calls && ms <= minCallsPerTurn.ms);
    },
  };
}
