// Hand-written, because prom-client looks up its labels for every value. That takes twenty times as long as these
// additions, on every call. prom-client reads the sums when the metrics are scraped.
import type { Protocol } from "./access-log.js";

/** Counts one call of one RPC over one protocol. */
export type CountCall = (code: string, durationMs: number) => void;

/** The calls of one RPC over one protocol, since the process started. */
export interface CallCounts {
  readonly protocol: Protocol;
  readonly method: string;
  /** The number of calls by result code. */
  readonly byCode: ReadonlyMap<string, number>;
  /** Histogram buckets, not cumulative: the calls of each bound, and in the last bucket those above all bounds. */
  readonly byDuration: readonly number[];
  readonly seconds: number;
}

/** Counts the calls of a process. */
export interface CallMetrics {
  counterOf(protocol: Protocol, method: string): CountCall;
  read(): readonly CallCounts[];
}

/** Upper bounds of the histogram's buckets, in seconds: from a cached key to the maximum duration of a call. */
export const durationBounds = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
] as const;

/** Counts the calls of these methods. All others have one label together, so that clients cannot create labels. */
export function createCallMetrics(methods: readonly string[]): CallMetrics {
  const knownMethods = new Set(methods);
  const countsByLabels = new Map<string, ReturnType<typeof createCounts>>();

  return {
    counterOf(protocol, method) {
      const label = knownMethods.has(method) ? method : "other";
      const labels = `${protocol} ${label}`;
      const counts = countsByLabels.get(labels) ?? createCounts(protocol, label);
      countsByLabels.set(labels, counts);
      return counts.count;
    },
    read: () => [...countsByLabels.values()].map(({ read }) => read()),
  };
}

function createCounts(protocol: Protocol, method: string) {
  const byCode = new Map<string, number>();
  // A typed array, so that an addition allocates nothing. The last element is the sum of all durations.
  const durations = new Float64Array(durationBounds.length + 2);
  const sumIndex = durationBounds.length + 1;

  function add(index: number, value: number): void {
    durations[index] = (durations[index] as number) + value;
  }

  return {
    count(code: string, durationMs: number): void {
      const seconds = durationMs / 1_000;
      let bucket = 0; // most calls belong to one of the first buckets
      while (bucket < durationBounds.length && seconds > (durationBounds[bucket] as number)) bucket++;
      add(bucket, 1);
      add(sumIndex, seconds);
      byCode.set(code, (byCode.get(code) ?? 0) + 1);
    },
    read: (): CallCounts => ({
      protocol,
      method,
      byCode,
      byDuration: [...durations.subarray(0, sumIndex)],
      seconds: durations[sumIndex] as number,
    }),
  };
}
