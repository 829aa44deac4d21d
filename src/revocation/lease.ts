import type { MaybePromise } from "../call/maybe-promise.js";
import { serviceUnavailable } from "../errors.js";
import type { ChangeLog } from "./change-log.js";
import type { ChangeSource } from "./change-poller.js";
import type { Clock } from "./clock.js";
import { includes, type Snapshot, snapshotBefore } from "./snapshot.js";

/** The right to answer from what is held: it lasts for one lease time after changes were last asked for. */
export interface Lease {
  /** For how long it lasts after a question, as the last answer had it. */
  readonly leaseMs: number;
  /** For how long it goes on, by the clock at this moment; 0 if it is lost. */
  remaining(): number;
  /**
   * Resolves when every change that was acknowledged before this moment is known here. Throws if Postgres cannot be
   * asked.
   */
  ensure(): MaybePromise<void>;
  /** Asks for changes, in a question that is sent after this moment. */
  renew(): Promise<void>;
  /** Resolves when no process has a lease any more that it got before this moment; throws if that cannot be known. */
  waitOut(): Promise<void>;
  /**
   * The time by the database's clock, at the latest that it can be at this moment: what has not come by then has not come in
   * the database either. Throws if that cannot be known, because a clock has jumped since the last answer.
   */
  databaseTime(): Date;
}

/** How far the two clocks may drift apart within one lease before the monotonic one is no longer trusted. */
const mostDriftMs = 5;

/**
 * How much faster a clock can run than another. While chrony corrects a clock, it lets it run up to a twelfth too fast or too
 * slow (its default `maxslewrate`, 83,333 ppm), the monotonic one too; and both may be corrected at once.
 */
const mostSpeedRatio = (1 + 1 / 12) / (1 - 1 / 12);

/** Timers fire up to 1 ms early, and the event loop's own clock, which they are set by, is up to 1 ms behind. */
const timerSlackMs = 2;

/**
 * Why a change that has been waited out is known everywhere: let it be visible at c, and acknowledged at T, one lease
 * later by the slowest clock. Whoever answers after T from what it holds has a lease from a question sent after T − lease,
 * that is after c; so the answer to that question contained the change, and it was learnt before the lease was extended.
 *
 * The database tells with each answer for how long a lease lasts, and for how long changes wait: at every moment, for no
 * less than any lease that somebody still has. So a change has waited long enough if it did so by an answer to a question
 * that was sent after c: a lease that does not know of the change is from before.
 *
 * @param firstLeaseMs counts until the first answer
 */
export function createLease(source: ChangeSource, changes: ChangeLog, firstLeaseMs: number, clock: Clock): Lease {
  let leaseMs = firstLeaseMs;
  let waitMs = firstLeaseMs;
  let validUntil = Number.NEGATIVE_INFINITY;
  /** Wall time less monotonic time, when the lease was got. A suspended machine shows by it. */
  let offset = 0;
  /** The database's time in the last answer, and what our clocks said when that was asked for. */
  let told: { time: number; wall: number; sentAt: number } | undefined;
  let underWay: Promise<void> | undefined;
  let upNext: Promise<void> | undefined;

  async function ask(since: Snapshot, history: string): Promise<void> {
    await source.connect();
    // In this order, a pause between the two makes the lease seem lost rather than longer; in timeLeft likewise.
    const wall = clock.wall();
    const sentAt = clock.monotonic();
    const found = await source.changedSince(since);
    if (found.standby) throw unusable("the database is a standby or read-only, and may not know of the last changes");
    if (found.unsafeSetting !== null) throw unusable(`${found.unsafeSetting}: acknowledged changes could be lost`);

    // Another history need not have all the changes that we have seen: its own recent past is asked for.
    if (found.history !== history) return ask(recentSnapshot(found.snapshot), found.history);
    if (!includes(found.snapshot, since)) {
      // A backup was restored in place. Its transaction ids will be counted a second time, for other changes.
      await source.startTimeline();
      return ask(since, history);
    }

    if (history !== changes.timeline) changes.reset(since, history);
    if (found.changes === undefined) changes.reset(found.snapshot, history);
    else changes.append(found.snapshot, found.changes);
    told = { time: found.time, wall, sentAt };
    ({ leaseMs, waitMs } = found);
    offset = wall - sentAt;
    validUntil = sentAt + leaseMs;
  }

  /** One question at a time, so that answers are learnt in the order of their snapshots. */
  function renew(): Promise<void> {
    upNext ??= (async () => {
      await underWay?.catch(() => {});
      upNext = undefined;
      underWay = ask(changes.present, changes.timeline).finally(() => {
        underWay = undefined;
      });
      return underWay;
    })();
    return upNext;
  }

  function timeLeft(): number {
    const now = clock.monotonic();
    const drift = Math.abs(clock.wall() - now - offset);
    return drift > mostDriftMs ? 0 : Math.max(0, validUntil - now);
  }

  function ensure(): MaybePromise<void> {
    return timeLeft() > 0 ? undefined : regain();
  }

  async function regain(): Promise<void> {
    // A question under way may have been sent before this call began: it helps only if it brings a lease.
    await underWay?.catch(() => {});
    if (timeLeft() > 0) return;
    await renew();
  }

  return {
    get leaseMs() {
      return leaseMs;
    },
    remaining: timeLeft,
    ensure,
    renew,
    async waitOut() {
      let waitedMs: number;
      do {
        waitedMs = waitMs;
        await waitOut(waitedMs, clock);
        // Without a lease, what we know of the wait may be older than the change. With one, it is not: the question was
        // sent less than a lease ago, and the wait is no shorter than that.
        await ensure();
      } while (waitMs > waitedMs);
    },
    databaseTime() {
      if (told === undefined) throw unusable("the database has not told its time yet");
      // The database read its clock after the question was sent. How long ago that is, only clocks tell that agree.
      const monotonicMs = clock.monotonic() - told.sentAt;
      const wallMs = clock.wall() - told.wall;
      if (Math.abs(wallMs - monotonicMs) > mostDriftMs)
        throw unusable("a clock of this machine was set, or has stood still");
      return new Date(told.time + Math.max(monotonicMs, wallMs) * mostSpeedRatio);
    },
  };
}

/** Resolves when leases of this length are over that others got before. */
export function waitOut(leaseMs: number, clock: Clock): Promise<void> {
  // Others may have a lease for longer by a drift that they did not notice, and by a clock that is slower than ours.
  return passed((leaseMs + mostDriftMs) * mostSpeedRatio, clock);
}

/** Resolves when this much has passed by both clocks: one of them may be set ahead meanwhile. */
async function passed(ms: number, clock: Clock): Promise<void> {
  const begunAt = clock.monotonic();
  let wallBegunAt = clock.wall();
  let wallBefore = wallBegunAt;
  for (;;) {
    const wall = clock.wall();
    // Set back, it would seem to stand still for that long: it is counted anew.
    if (wall < wallBefore) wallBegunAt = wall;
    wallBefore = wall;
    const left = ms - Math.min(clock.monotonic() - begunAt, wall - wallBegunAt);
    if (left <= 0) return;
    await clock.sleep(left + timerSlackMs);
  }
}

/** How many transactions ago a process begins that knows nothing of the past. */
const recentTransactions = 10_000;

/** Where to begin, so that what other replicas have left in Redis can be used. */
export function recentSnapshot({ xmin }: Snapshot): Snapshot {
  return snapshotBefore(Math.max(0, xmin - recentTransactions));
}

/** Postgres answers, but not in a way that a lease could rest on. */
function unusable(why: string): Error {
  return serviceUnavailable(new Error(why));
}
