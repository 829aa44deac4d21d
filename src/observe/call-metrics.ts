// By hand, because prom-client finds its labels anew with every value: that takes twenty times as long as these additions,
// and every call would pay for it. It is told the sums when somebody asks.
import type { Protocol } from "./access-log.js";

/** Counts a call of one RPC through one protocol. */
export type CountCall = (code: string, durationMs: number) => void;

/** The calls of one RPC through one protocol so far. */
export interface CallCounts {
  readonly protocol: Protocol;
  readonly method: string;
  /** How many ended with each code. */
  readonly byCode: ReadonlyMap<string, number>;
  /** How many took no longer than each bound but longer than the one before; at last, how many took longer than all. */
  readonly byDuration: readonly number[];
  readonly seconds: number;
}

/** Counts the calls of a process. */
export interface CallMetrics {
  counterOf(protocol: Protocol, method: string): CountCall;
  read(): readonly CallCounts[];
}

/** The durations that are told apart, in seconds: from a key that is held to the longest that a call may take. */
export const durationBounds = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
] as const;

/** Counts the calls of these methods. All others count as one, so that no caller can make up labels. */
export function createCallMetrics(methods: readonly string[]): CallMetrics {
  const known = new Set(methods);
  const all = new Map<string, ReturnType<typeof createCounts>>();

  return {
    counterOf(protocol, method) {
      const label = known.has(method) ? method : "other";
      const place = `${protocol} ${label}`;
      const counts = all.get(place) ?? createCounts(protocol, label);
      all.set(place, counts);
      return counts.count;
    },
    read: () => [...all.values()].map(({ read }) => read()),
  };
}

function createCounts(protocol: Protocol, method: string) {
  const byCode = new Map<string, number>();
  // Plain numbers side by side, so that an addition makes no garbage. The last is the sum of all durations.
  const durations = new Float64Array(durationBounds.length + 2);
  const sum = durationBounds.length + 1;

  function add(place: number, value: number): void {
    durations[place] = (durations[place] as number) + value;
  }

  return {
    count(code: string, durationMs: number): void {
      const seconds = durationMs / 1_000;
      let place = 0; // one of the first, for most calls
      while (place < durationBounds.length && seconds > (durationBounds[place] as number)) place++;
      add(place, 1);
      add(sum, seconds);
      byCode.set(code, (byCode.get(code) ?? 0) + 1);
    },
    read: (): CallCounts => ({
      protocol: protocol,
      method,
      byCode,
      byDuration: [...durations.subarray(0, sum)],
      seconds: durations[sum] as number,
    }),
  };
}
