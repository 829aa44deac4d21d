import type { Clock } from "../revocation/clock.js";

/**
 * The right to verify locally, which the service grants in response to pings. It ends before the lease of the replica
 * that granted it.
 */
export interface LocalGrant {
  /** Begins a ping. Must be called before the ping is handed to the transport. Returns its number. */
  beginPing(): number;
  /** Accepts a grant. Returns false if it answers no ping that is remembered. */
  accept(ping: number, remainingMs: number): boolean;
  /**
   * How long the right still lasts; 0 if there is none.
   *
   * @param now a reading of the monotonic clock at this moment
   */
  remaining(now?: number): number;
  /** Whether the machine was suspended, or a clock was set. Then nothing that was received before may be used. */
  hasJumped(): boolean;
  /** The number of pings without a grant. */
  readonly unanswered: number;
}

/** The maximum drift between the two clocks that is not noticed. */
const maxDriftMs = 5;

/** How often the clocks are read before a difference counts as a jump: a pause between two readings looks like one. */
const maxReadings = 3;

/** For the rounding of times. */
const safetyFactor = 0.99;

/** How many pings without a grant are remembered. Grants for older ones are ignored. */
const maxRemembered = 100;

interface SentPing {
  readonly sentAt: number;
  /** Wall time minus monotonic time. */
  readonly offset: number;
}

export function createLocalGrant(clock: Pick<Clock, "monotonic" | "wall">): LocalGrant {
  const sent = new Map<number, SentPing>();
  let lastNumber = 0;
  let validUntil = Number.NEGATIVE_INFINITY;
  /** The offset at the granted ping, and at the last ping. */
  let offset: number | undefined;
  let lastOffset: number | undefined;
  let jumpedBetweenPings = false;

  /**
   * The monotonic time. Undefined if the other clock has not advanced alike since the granted ping. With this order, a
   * pause between the two readings makes the right seem lost rather than longer. So does the order in `readPing`.
   */
  function steadyNow(firstReading = clock.monotonic()): number | undefined {
    let now = firstReading;
    for (let reading = 0; reading < maxReadings && !jumpedBetweenPings; reading++) {
      if (!isFar(clock.wall() - now, offset)) return now;
      now = clock.monotonic();
    }
    return undefined;
  }

  function readPing(): SentPing {
    const wall = clock.wall();
    const sentAt = clock.monotonic();
    return { sentAt, offset: wall - sentAt };
  }

  return {
    get unanswered() {
      return sent.size;
    },
    beginPing() {
      lastNumber += 1;
      let ping = readPing();
      for (let reading = 1; reading < maxReadings && isFar(ping.offset, lastOffset); reading++) ping = readPing();
      sent.set(lastNumber, ping);
      // Otherwise the offset of this ping would replace the earlier one, and the jump would go unnoticed.
      jumpedBetweenPings ||= isFar(ping.offset, lastOffset);
      lastOffset = ping.offset;
      if (sent.size > maxRemembered) sent.delete(sent.keys().next().value as number);
      return lastNumber;
    },
    accept(ping, remainingMs) {
      const answered = sent.get(ping);
      if (answered === undefined) return false;
      for (const number of sent.keys()) if (number <= ping) sent.delete(number);
      // Counted from the ping and not from the arrival of the grant, which may have been delayed for any time.
      const until = answered.sentAt + safetyFactor * remainingMs - maxDriftMs;
      if (until > validUntil) {
        validUntil = until;
        ({ offset } = answered);
      }
      return true;
    },
    remaining(firstReading) {
      const now = steadyNow(firstReading);
      return now === undefined ? 0 : Math.max(0, validUntil - now);
    },
    hasJumped: () => steadyNow() === undefined,
  };
}

function isFar(offset: number, earlier: number | undefined): boolean {
  return earlier !== undefined && Math.abs(offset - earlier) > maxDriftMs;
}
