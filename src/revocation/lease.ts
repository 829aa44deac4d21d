import type { MaybePromise } from "../call/maybe-promise.js";
import { serviceUnavailable } from "../errors.js";
import type { ChangeLog } from "./change-log.js";
import type { ChangeSource } from "./change-poller.js";
import type { Change } from "./change-store.js";
import type { Clock } from "./clock.js";
import { includes, type Snapshot, snapshotBefore } from "./snapshot.js";

/** The right to answer from cached key state. It lasts for one lease time after the last successful poll was sent. */
export interface Lease {
  /** The lease time, as the last poll returned it. */
  readonly leaseMs: number;
  /** How long the lease still lasts, by the clock at this moment; 0 if it is lost. */
  remaining(): number;
  /**
   * Resolves when every change that was acknowledged before this moment is known here. Throws if PostgreSQL cannot be
   * asked.
   */
  ensure(): MaybePromise<void>;
  /** Polls for changes. The poll is sent after this moment. */
  renew(): Promise<void>;
  /** Resolves when no process has a lease any more that it got before this moment. Throws if that cannot be known. */
  waitOut(): Promise<void>;
  /**
   * The latest time that the database's clock can show at this moment. A time that is still ahead of it is still ahead
   * in the database, too. Throws if it cannot be known, because a clock has jumped since the last answer.
   */
  databaseTime(): Date;
  /**
   * The end of the lease by the database's clock. A change that is not known here is not acknowledged earlier. So a
   * statement that was decided on under the lease keeps the promise of revocation if it begins in time, even if it was
   * delayed on its way.
   */
  databaseDeadline(): Date;
}

/** The maximum drift between the two clocks within one lease. Beyond it the monotonic clock is no longer trusted. */
const maxDriftMs = 5;

/**
 * The maximum ratio between the speeds of two clocks. While chrony corrects a clock, the clock runs up to a twelfth too
 * fast or too slow (chrony's default `maxslewrate`, 83,333 ppm). That applies to the monotonic clock, too, and both
 * machines may be corrected at the same time.
 */
const maxSpeedRatio = (1 + 1 / 12) / (1 - 1 / 12);

/** Timers fire up to 1 ms early, and the event loop's own clock, which sets them, is up to 1 ms behind. */
const timerSlackMs = 2;

/**
 * Why every process knows a change that has been waited out. Let the change be visible at c and acknowledged at T, one
 * lease time later by the slowest clock. A process that answers from its cache after T has a lease from a poll that was
 * sent after T − lease, that is after c. So the answer to that poll contained the change, and the process applied it
 * before it extended its lease.
 *
 * Each answer of the database contains the lease time and the wait of changes. At every moment, that wait is at least
 * as long as any lease that some process still has. So a change has waited long enough if it used the wait from a poll
 * that was sent after c: a lease that does not know of the change is from before c, so this wait covers it.
 *
 * @param firstLeaseMs the lease time until the first answer
 * @param onChanges called with new changes before the lease is extended, in the same turn of the event loop; with
 *   undefined if they are not known in detail
 */
export function createLease(
  source: ChangeSource,
  changeLog: ChangeLog,
  firstLeaseMs: number,
  clock: Clock,
  onChanges: (changes: readonly Change[] | undefined) => void = () => {},
): Lease {
  let leaseMs = firstLeaseMs;
  let waitMs = firstLeaseMs;
  let validUntil = Number.NEGATIVE_INFINITY;
  /** Wall time minus monotonic time when the lease was obtained. It differs after the machine was suspended. */
  let offset = 0;
  let lastAnswer: Answer | undefined;
  /** Once the tables were subscribed to those of another server, cached values may lack changes for good. */
  let wasSubscribed = false;
  let inFlight: Promise<void> | undefined;
  let queued: Promise<void> | undefined;

  async function poll(since: Snapshot, timeline: string): Promise<void> {
    await source.connect();
    // With this order, a pause between the two readings makes the lease seem lost rather than longer. The same holds in
    // `remaining`.
    const wall = clock.wall();
    const sentAt = clock.monotonic();
    const found = await source.changedSince(since);
    if (found.standby) throw unusable("the database is a standby or read-only, and may not know the latest changes");
    wasSubscribed ||= found.subscribed;
    if (wasSubscribed) throw unusable("logical replication has changed the tables; drop the subscription, and restart");
    if (found.unsafeSetting !== null) throw unusable(`${found.unsafeSetting}: acknowledged changes could be lost`);

    if (found.timeline === "") {
      await source.startTimelineAfterCrash();
      return poll(since, timeline);
    }
    // Another timeline may lack changes that this process has seen, so its own recent past is read.
    if (found.timeline !== timeline) return poll(recentSnapshot(found.snapshot), found.timeline);
    if (!includes(found.snapshot, since)) {
      // A backup was restored in place. The database will use the same transaction ids again, for other changes.
      await source.startTimeline();
      return poll(since, timeline);
    }

    const isOtherTimeline = timeline !== changeLog.timeline;
    if (isOtherTimeline) changeLog.reset(since, timeline);
    if (found.changes === undefined) changeLog.reset(found.snapshot, timeline);
    else changeLog.append(found.snapshot, found.changes);
    onChanges(isOtherTimeline ? undefined : found.changes);
    ({ leaseMs, waitMs } = found);
    lastAnswer = { time: found.time, wall, sentAt };
    offset = wall - sentAt;
    validUntil = sentAt + leaseMs;
  }

  /** One poll at a time, so that answers are applied in the order of their snapshots. */
  function renew(): Promise<void> {
    queued ??= (async () => {
      await inFlight?.catch(() => {});
      queued = undefined;
      inFlight = poll(changeLog.present, changeLog.timeline).finally(() => {
        inFlight = undefined;
      });
      return inFlight;
    })();
    return queued;
  }

  function remaining(): number {
    const now = clock.monotonic();
    const drift = Math.abs(clock.wall() - now - offset);
    return drift > maxDriftMs ? 0 : Math.max(0, validUntil - now);
  }

  function ensure(): MaybePromise<void> {
    return remaining() > 0 ? undefined : regain();
  }

  async function regain(): Promise<void> {
    // A poll in flight may have been sent before this call began. It helps only if its answer brings a lease.
    await inFlight?.catch(() => {});
    if (remaining() > 0) return;
    await renew();
  }

  return {
    get leaseMs() {
      return leaseMs;
    },
    remaining,
    ensure,
    renew,
    async waitOut() {
      let waitedMs: number;
      do {
        waitedMs = waitMs;
        await waitOut(waitedMs, clock);
        // Without a lease, the known wait may be older than the change. With a lease it is not: the poll was sent less
        // than a lease time ago, and the wait is no shorter than that.
        await ensure();
      } while (waitMs > waitedMs);
    },
    databaseTime() {
      if (lastAnswer === undefined) throw unusable("the database's time is not known yet");
      // The database read its clock after the poll was sent. The clocks are read a second time if they disagree: the process
      // may have been paused between its two readings.
      const passedMs = timeSince(lastAnswer, clock) ?? timeSince(lastAnswer, clock);
      if (passedMs === undefined) throw unusable("a clock of this machine was set, or has stood still");
      return new Date(lastAnswer.time + passedMs * maxSpeedRatio);
    },
    // The database read its clock before it took the snapshot, and a change that this does not include waits for a lease.
    databaseDeadline: () => new Date(lastAnswer === undefined ? 0 : lastAnswer.time + leaseMs),
  };
}

/** The answer to a poll. */
interface Answer {
  /** The database's time. */
  readonly time: number;
  /** What the clocks of this process showed when the poll was sent. */
  readonly wall: number;
  readonly sentAt: number;
}

/** The milliseconds since the poll was sent, by the clock that shows more; undefined if the clocks disagree. */
function timeSince({ wall, sentAt }: Answer, clock: Clock): number | undefined {
  const monotonicMs = clock.monotonic() - sentAt;
  const wallMs = clock.wall() - wall;
  return Math.abs(wallMs - monotonicMs) > maxDriftMs ? undefined : Math.max(monotonicMs, wallMs);
}

/** Resolves when every lease of this length that any process got before has ended. */
export function waitOut(leaseMs: number, clock: Clock): Promise<void> {
  // Another process may have its lease for longer: by a drift that it did not notice, and by a clock slower than ours.
  return passed((leaseMs + maxDriftMs) * maxSpeedRatio, clock);
}

/** Resolves when both clocks have advanced by this time, because one of them may be set ahead meanwhile. */
async function passed(ms: number, clock: Clock): Promise<void> {
  const begunAt = clock.monotonic();
  let wallBegunAt = clock.wall();
  let wallBefore = wallBegunAt;
  for (;;) {
    const wall = clock.wall();
    // A clock that was set back would seem to stand still for that long, so its count starts over.
    if (wall < wallBefore) wallBegunAt = wall;
    wallBefore = wall;
    const left = ms - Math.min(clock.monotonic() - begunAt, wall - wallBegunAt);
    if (left <= 0) return;
    await clock.sleep(left + timerSlackMs);
  }
}

/** The number of past transactions whose changes a process reads at first, when it knows nothing of the past. */
const recentTransactions = 10_000;

/**
 * The snapshot to begin with, early enough to use the entries that other replicas have left in Redis. It includes the
 * stamp 0 of rows that were never changed: after a restore into a new server, these are most rows of all tables.
 */
export function recentSnapshot({ xmin }: Snapshot): Snapshot {
  return snapshotBefore(Math.max(1, xmin - recentTransactions));
}

/** PostgreSQL answered, but no lease can depend on the answer. */
function unusable(why: string): Error {
  return serviceUnavailable(new Error(why));
}
