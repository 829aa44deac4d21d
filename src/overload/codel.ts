// By hand: what npm has under this name (event-loop lag meters, "toobusy") refuses by chance and by the mean of the past.
// CoDel (RFC 8289) tells a burst, which passes, from a queue that stands, and needs a dozen lines.

/** How long one may wait in a queue, in milliseconds. */
export interface CoDelOptions {
  /** While the queue stands. */
  readonly targetMs: number;
  /** While it does not: bursts and pauses are waited out. */
  readonly burstMs: number;
  /** A queue stands once everyone has waited for longer than the target, for this long. */
  readonly intervalMs: number;
}

/** How long one may wait in one queue at a given moment. */
export interface CoDel {
  /** Tells how long somebody had waited whose turn came. */
  recordWait(ms: number, now: number): void;
  maxWait(now: number): number;
}

/** After a queue has stood, no burst is waited out for so long: more of the same is to be expected. */
const waryMs = 5_000;

/**
 * Watches a queue as CoDel does. A queue that empties again is doing its work, however long it was; one that never does
 * makes everyone wait and helps nobody, so it is kept short. As soon as it is short it would be let grow again, and
 * everyone would wait by turns; so it is not, for a while.
 */
export function createCoDel({ targetMs, burstMs, intervalMs }: CoDelOptions): CoDel {
  let standsSince = Number.POSITIVE_INFINITY;
  let waryUntil = Number.NEGATIVE_INFINITY;
  return {
    recordWait(ms, now) {
      standsSince = ms < targetMs ? Number.POSITIVE_INFINITY : Math.min(standsSince, now);
      if (now - standsSince >= intervalMs) waryUntil = now + waryMs;
    },
    maxWait: (now) => (now < waryUntil || now - standsSince >= intervalMs ? targetMs : burstMs),
  };
}
