// Hand-written: npm packages for this (event-loop lag meters, "toobusy") reject at random, by a mean of past values.
// CoDel (RFC 8289) distinguishes a burst, which drains, from a standing queue, and needs a dozen lines.

/** The maximum waiting times of a queue, in milliseconds. */
export interface CoDelOptions {
  /** The maximum wait while there is a standing queue. */
  readonly targetMs: number;
  /** The maximum wait otherwise, which lets bursts and pauses drain. */
  readonly burstMs: number;
  /** The queue counts as standing after all waits have exceeded the target for this long. */
  readonly intervalMs: number;
}

/** The maximum waiting time of one queue, which depends on the recent waits. */
export interface CoDel {
  /** Records how long an element had waited when it left the queue. */
  recordWait(ms: number, now: number): void;
  maxWait(now: number): number;
}

/** How long bursts get no longer limit after a standing queue, because more load of the same kind is likely. */
const cooldownMs = 5_000;

/**
 * Observes a queue as CoDel does. A queue that drains again is useful, however long it was. A standing queue only adds
 * delay, so it is kept short. Without the cooldown, the queue could grow again as soon as it is short, and the delay
 * would oscillate.
 */
export function createCoDel({ targetMs, burstMs, intervalMs }: CoDelOptions): CoDel {
  let standingSince = Number.POSITIVE_INFINITY;
  let cooldownUntil = Number.NEGATIVE_INFINITY;
  return {
    recordWait(ms, now) {
      standingSince = ms < targetMs ? Number.POSITIVE_INFINITY : Math.min(standingSince, now);
      if (now - standingSince >= intervalMs) cooldownUntil = now + cooldownMs;
    },
    maxWait: (now) => (now < cooldownUntil || now - standingSince >= intervalMs ? targetMs : burstMs),
  };
}
