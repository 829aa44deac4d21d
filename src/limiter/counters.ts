// Written by hand: rate-limiter-flexible, which counts the requests of workspaces, counts one Redis key per command. So it
// cannot count several limits all or nothing. See docs/decisions/0033-rate-limits-in-one-redis-script.md.
import type { Span } from "@opentelemetry/api";
import { LRUCache } from "lru-cache";
import type { MaybePromise } from "../call/maybe-promise.js";
import type { Log } from "../observe/log.js";
import { inSpan } from "../observe/tracing.js";
import type { RedisCache } from "../storage/redis/client.js";
import { type Count, createBatchedCount } from "./batched-count.js";
import { exceedsLimit, type NotBegun } from "./count-script.js";
import { createLocalCounters } from "./local-counters.js";
import { createOpenWindows } from "./open-windows.js";

/** A use of something limited. Windows are fixed: one begins with the first use that counts, and ends after its duration. */
export interface CounterUse {
  /** The Redis key of the counter. */
  readonly key: string;
  readonly limit: number;
  readonly durationMs: number;
  /** With 0, nothing is counted, and the use is refused only if more than the limit was used already, or the limit is 0. */
  readonly cost: number;
}

/** Uses that are counted together: all of them or, if one would exceed its limit, none. */
export interface UsesToCheck {
  /** The workspace whose share of the memory of this process they may take. */
  readonly workspaceId: string;
  /** The hash tag of all their Redis keys. */
  readonly hashTag: string;
  /** Each with another Redis key. */
  readonly uses: readonly CounterUse[];
}

/** What a counter contained before a use. */
export interface CounterReading {
  readonly used: number;
  /** The remaining time of the window; the duration, if there is none. */
  readonly msLeft: number;
}

/** A counter after a check. */
export interface CounterState {
  /** Whether this limit refused the uses. */
  readonly exceeded: boolean;
  readonly remaining: number;
  readonly msLeft: number;
}

export interface CheckResult {
  readonly passed: boolean;
  /** In the order of the uses. */
  readonly states: readonly CounterState[];
  /**
   * True if this process has counted some of the uses, or all of them, by itself: Redis could not be asked, or the workspace has
   * too many counters there.
   */
  readonly perProcess: boolean;
}

/** The number of checks so far, by where they were counted and by result. */
export type CheckCounts = Readonly<Record<"shared" | "per_process", Record<"passed" | "exceeded", number>>>;

export interface Counters {
  /** Counts the uses. Never fails: without Redis, this process counts by itself. */
  check(uses: UsesToCheck, span?: Span): MaybePromise<CheckResult>;
  readonly checks: CheckCounts;
}

/** Of the span of a check in Redis. */
const spanAttributes = { "db.system.name": "redis", "db.operation.name": "EVALSHA" };

/** How long Redis is not used for a hash tag after a timeout, and for how many this is remembered. */
const timeoutCacheOptions = { ttl: 1_000, max: 10_000 };

/** How often the log says that a workspace has too many counters in Redis, and for how many workspaces this is remembered. */
const warningCacheOptions = { ttl: 3_600_000, max: 10_000 };

/** How many counters of refused uses are remembered. They take 7 MB. For others, Redis is asked again. */
const maxRemembered = 20_000;

/**
 * How long they are remembered at most. If Redis loses its data, a process that remembers a refusal goes on refusing while
 * others begin a new window, so this must be short compared with windows of up to 30 days. A client in a loop costs Redis one
 * command in this time, and all remembered counters together 2,000 a second.
 */
const maxRememberedMs = 10_000;

/**
 * Counts uses in Redis, for all replicas together, by one script.
 *
 * What holds while Redis keeps its data: of the uses of one window whose result is not `perProcess`, those that passed sum
 * up to at most the limit, whatever happens to answers. A use passes only with an answer of the script, the script has
 * then counted it, and no count exceeds the limit that it is compared with.
 *
 * If the answer does not come in time, this process counts the use by itself, and the result is `perProcess`. Redis may have
 * counted it, too, or may do so later. So it may be counted twice, and then fewer uses pass than the limit allows; it is
 * never passed without being counted somewhere. For one second, further uses with this hash tag do not wait for Redis. While
 * Redis is bypassed, each process admits up to the limit.
 *
 * A full Redis with the policy `noeviction` refuses the script before it has counted anything, which is the same as no
 * answer.
 *
 * Once a workspace has `maxCounters` open windows in Redis, each process counts its further windows by itself. So no workspace
 * fills Redis, whatever identifiers it invents. The open windows are still counted in Redis, also by a check that needs a
 * further one besides, which is then `perProcess`.
 *
 * If Redis loses its data (a restart without persistence, a failover before replication, eviction by another policy), windows
 * begin anew, at the latest when this process forgets its refusals.
 *
 * @param maxCounters of one workspace, of those that this process has begun
 * @param now the monotonic clock, in milliseconds
 */
export function createCounters(
  redis: RedisCache | undefined,
  maxCounters: number,
  log: Log,
  now = () => performance.now(),
): Counters {
  const local = createLocalCounters(now);
  const countShared = redis && createBatchedCount(redis);
  const refusals = createRefusals(now);
  const openWindows = createOpenWindows(now);
  const warned = new LRUCache<string, true>(warningCacheOptions);
  // The circuit breaker handles a Redis that hangs, but not one that is a node of a cluster: the other nodes answer.
  const timedOut = new LRUCache<string, true>(timeoutCacheOptions);
  const checks = { shared: { passed: 0, exceeded: 0 }, per_process: { passed: 0, exceeded: 0 } };

  function resultOf(
    uses: readonly CounterUse[],
    readings: readonly CounterReading[],
    perProcess: boolean,
  ): CheckResult {
    const result = { ...compare(uses, readings), perProcess };
    checks[perProcess ? "per_process" : "shared"][result.passed ? "passed" : "exceeded"] += 1;
    return result;
  }

  async function checkShared(count: Count, checked: UsesToCheck, span: Span | undefined): Promise<CheckResult> {
    const { workspaceId, hashTag, uses } = checked;
    const sentAt = now();
    const mayBegin = openWindows.count(workspaceId) < maxCounters;
    const counted = await traced(count({ uses, mayBegin }, hashTag), span);
    if (counted === undefined) return checkUnanswered(checked);
    if ("open" in counted) {
      warnOfCounters(workspaceId);
      return checkDivided(count, checked, counted, span);
    }
    const result = resultOf(uses, counted, false);
    if (result.passed) noteBegun(workspaceId, uses, counted);
    else refusals.remember(uses, counted, sentAt);
    return result;
  }

  /**
   * Checks uses of which some would have to begin a window in Redis and may not. This process counts these, and Redis the
   * others: an open window stays exact, whatever else its checks contain.
   *
   * A refused check still counts nowhere. This process counts first, and takes its counts back if Redis then refuses. The other
   * way round, a command that takes back could be lost. One deviation: until Redis has answered, concurrent checks are compared
   * with counts that may be taken back, and may be refused because of them.
   */
  async function checkDivided(
    count: Count,
    checked: UsesToCheck,
    { open }: NotBegun,
    span: Span | undefined,
  ): Promise<CheckResult> {
    const { workspaceId, hashTag, uses } = checked;
    const shared = uses.filter((_use, index) => open[index] !== undefined);
    const own = uses.filter((_use, index) => open[index] === undefined);
    const { readings: ownReadings, takeBack } = local.count(workspaceId, own);
    if (shared.length === 0 || !compare(own, ownReadings).passed) {
      const sharedReadings = open.filter((reading) => reading !== undefined);
      return resultOf(uses, inOrder(open, sharedReadings, ownReadings), true);
    }
    const sentAt = now();
    const counted = await traced(count({ uses: shared, mayBegin: false }, hashTag), span);
    if (counted === undefined || "open" in counted) {
      takeBack();
      if (counted === undefined) return checkUnanswered(checked);
      // A window has ended meanwhile.
      return checkShared(count, checked, span);
    }
    const result = resultOf(uses, inOrder(open, counted, ownReadings), true);
    if (!result.passed) {
      takeBack();
      refusals.remember(shared, counted, sentAt);
    }
    return result;
  }

  function checkUnanswered(checked: UsesToCheck): CheckResult {
    timedOut.set(checked.hashTag, true);
    return checkAlone(checked);
  }

  function checkAlone({ workspaceId, uses }: UsesToCheck): CheckResult {
    return resultOf(uses, local.count(workspaceId, uses).readings, true);
  }

  /** A counter that contained nothing did not exist. */
  function noteBegun(workspaceId: string, uses: readonly CounterUse[], readings: readonly CounterReading[]): void {
    for (const [index, { cost, durationMs }] of uses.entries()) {
      if (cost > 0 && usedBefore(readings, index) === 0) openWindows.add(workspaceId, durationMs);
    }
  }

  function warnOfCounters(workspaceId: string): void {
    if (warned.has(workspaceId)) return;
    warned.set(workspaceId, true);
    log.warn({ workspaceId }, "QUOTA_COUNTERS reached; each process counts new rate-limit windows of the workspace");
  }

  return {
    checks,
    check(checked, span) {
      const { hashTag, uses } = checked;
      const remembered = refusals.find(uses);
      if (remembered !== undefined) return resultOf(uses, remembered, false);
      if (countShared && redis.inUse && !timedOut.has(hashTag)) return checkShared(countShared, checked, span);
      return checkAlone(checked);
    },
  };
}

/** The result of uses, by the counts from before. The script and the local counters decide by the same comparison. */
function compare(uses: readonly CounterUse[], readings: readonly CounterReading[]): Omit<CheckResult, "perProcess"> {
  const isExceeded = (use: CounterUse, index: number) => exceedsLimit(use, usedBefore(readings, index));
  const passed = !uses.some(isExceeded);
  const states = uses.map((use, index) => {
    const used = usedBefore(readings, index) + (passed ? use.cost : 0);
    const { msLeft } = readings[index] as CounterReading;
    return { exceeded: !passed && isExceeded(use, index), remaining: Math.max(0, use.limit - used), msLeft };
  });
  return { passed, states };
}

/** The counts of divided uses, in the order of the uses. */
function inOrder(
  open: NotBegun["open"],
  ofShared: readonly CounterReading[],
  ofOwn: readonly CounterReading[],
): CounterReading[] {
  const [nextShared, nextOwn] = [ofShared.values(), ofOwn.values()];
  return open.map((reading) => (reading === undefined ? nextOwn : nextShared).next().value as CounterReading);
}

/** Not an async function, which would cost another promise for each check. */
function traced<T>(counting: Promise<T>, span: Span | undefined): Promise<T> {
  return span ? inSpan(span, spanAttributes, counting) : counting;
}

function usedBefore(readings: readonly CounterReading[], index: number): number {
  return (readings[index] as CounterReading).used;
}

interface Remembered {
  readonly used: number;
  /**
   * No later than the end of the window, because Redis measured the remaining time after the command was sent. Earlier, if
   * the window is longer than a refusal is remembered.
   */
  readonly forgetAt: number;
  /** No earlier than the end of the window, because Redis measured the remaining time before its answer arrived. */
  readonly endsAt: number;
}

/**
 * Remembers the counts of refused uses for some seconds, or until their windows end, so that a client in a loop costs Redis
 * next to nothing. Within a window a count only grows: a use that would exceed the limit by a remembered count exceeds it by
 * the present one, too. The comparison is with the limit of the use, so a raised limit holds at once. The counts of the other
 * limits of a refused use are remembered with it, and may be too low by now; they are only returned.
 */
function createRefusals(now: () => number) {
  const counts = new LRUCache<string, Remembered>({ max: maxRemembered });

  return {
    remember(uses: readonly CounterUse[], readings: readonly CounterReading[], sentAt: number): void {
      const at = now();
      uses.forEach(({ key }, index) => {
        const { used, msLeft } = readings[index] as CounterReading;
        counts.set(key, { used, forgetAt: sentAt + Math.min(msLeft, maxRememberedMs), endsAt: at + msLeft });
      });
    },

    /** The counts, if all are remembered and one of the uses exceeds its limit. */
    find(uses: readonly CounterUse[]): CounterReading[] | undefined {
      // Most uses are of counters that have refused nothing.
      if (counts.size === 0 || !uses.some(({ key }) => counts.has(key))) return undefined;
      const at = now();
      const readings: CounterReading[] = [];
      let exceeds = false;
      for (const use of uses) {
        const known = counts.get(use.key);
        if (known === undefined || known.forgetAt <= at) return undefined;
        if (use.cost > 0 && exceedsLimit(use, known.used)) exceeds = true;
        readings.push({ used: known.used, msLeft: Math.ceil(known.endsAt - at) });
      }
      return exceeds ? readings : undefined;
    },
  };
}
