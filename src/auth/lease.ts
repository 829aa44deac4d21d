import { serviceUnavailable } from "../errors.js";
import type { Soon } from "../soon.js";
import type { Changes } from "./changes.js";
import type { Clock } from "./clock.js";
import type { ChangeSource } from "./heartbeat.js";
import { mostChanges } from "./store.js";

/** The right to answer from what is held: it lasts for one lease time after changes were last asked for. */
export interface Lease {
  readonly leaseMs: number;
  /** For how long it goes on, by the clock at this moment; 0 if it is lost. */
  timeLeft(): number;
  /**
   * Resolves when every change that was acknowledged before this moment is known here. Throws if Postgres cannot be
   * asked.
   */
  ensure(): Soon<void>;
  /** Asks for changes, in a question that is sent after this moment. */
  renew(): Promise<void>;
  /** Resolves when no process has a lease any more that it got before this moment; throws if that cannot be known. */
  outlast(): Promise<void>;
}

/** How far the two clocks may drift apart within one lease before the monotonic one is no longer trusted. */
const mostDriftMs = 5;

/**
 * Why a change that has been waited out is known everywhere: let it be visible at c, and acknowledged at T, one lease
 * later. Whoever answers after T from what it holds has a lease from a question sent after T − lease, that is after c;
 * so the answer to that question contained the change, and it was learnt before the lease was extended.
 */
export function createLease(source: ChangeSource, changes: Changes, leaseMs: number, clock: Clock): Lease {
  let validUntil = Number.NEGATIVE_INFINITY;
  /** Wall time less monotonic time, when the lease was got. A suspended machine shows by it. */
  let offset = 0;
  let underWay: Promise<void> | undefined;
  let upNext: Promise<void> | undefined;

  async function ask(since: number, history: string): Promise<void> {
    await source.connect();
    // In this order, a pause between the two makes the lease seem lost rather than longer; in timeLeft likewise.
    const wall = clock.wall();
    const sentAt = clock.monotonic();
    const found = await source.changedSince(since);
    if (found.standby) throw unusable("the database is a standby or read-only, and may not know of the last changes");
    if (found.unsafeSetting !== null) throw unusable(`${found.unsafeSetting}: acknowledged changes could be lost`);
    if (found.leaseMs !== leaseMs) {
      // Others may by now wait for less than the lease that we still have.
      validUntil = Number.NEGATIVE_INFINITY;
      throw unusable(`the lease time was changed to ${found.leaseMs} ms: stop every replica, and start them again`);
    }

    // Another history need not have all the changes that we have seen: its own recent past is asked for.
    if (found.history !== history) return ask(recentPast(found.epoch), found.history);
    if (found.epoch < since) {
      // A backup was restored in place. Its epochs will be counted a second time, for other changes.
      await source.beginHistory();
      return ask(since, history);
    }

    if (history !== changes.history) changes.startOver(since, history);
    if (found.changes === undefined) changes.startOver(found.epoch, history);
    else changes.learn(found.epoch, found.changes, found.removedAt);
    offset = wall - sentAt;
    validUntil = sentAt + leaseMs;
  }

  /** One question at a time, so that answers are learnt in the order of their snapshots. */
  function renew(): Promise<void> {
    upNext ??= (async () => {
      await underWay?.catch(() => {});
      upNext = undefined;
      underWay = ask(changes.epoch, changes.history).finally(() => {
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

  function ensure(): Soon<void> {
    return timeLeft() > 0 ? undefined : regain();
  }

  async function regain(): Promise<void> {
    // A question under way may have been sent before this call began: it helps only if it brings a lease.
    await underWay?.catch(() => {});
    if (timeLeft() > 0) return;
    await renew();
  }

  return {
    leaseMs,
    timeLeft,
    ensure,
    renew,
    async outlast() {
      // The drift that nobody noticed; a hundredth, because clocks differ in speed; and timers fire up to 1 ms early.
      await clock.sleep((leaseMs + mostDriftMs) * 1.01 + 1);
      // Who has no lease may have the wrong idea of how long others have theirs.
      await ensure();
    },
  };
}

/** Where to begin, so that the changes up to this epoch can be told one by one. */
export function recentPast(epoch: number): number {
  return Math.max(0, epoch - mostChanges);
}

/** Postgres answers, but not in a way that a lease could rest on. */
function unusable(why: string): Error {
  return serviceUnavailable(new Error(why));
}
