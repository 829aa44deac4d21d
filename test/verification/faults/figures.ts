import type { Tally } from "./tally.js";

/** Latency figures in milliseconds. */
export interface Latency {
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

export function latencyOf(samples: readonly number[]): Latency {
  const sorted = samples.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
  return { count: sorted.length, p50: at(0.5), p99: at(0.99), max: sorted.at(-1) ?? 0 };
}

/**
 * Latency of `disableWorkspace`: in total, without faults, with other faults than those of Redis, and by Redis fault.
 */
export function disableLatency({ disables }: Tally): Map<string, Latency> {
  const onRedis = (name: string) => name.includes("redis");
  const groups = new Map<string, number[]>();
  for (const { ms, under } of disables) {
    const redisFaults = under.filter(onRedis);
    const group = under.length === 0 ? ["no fault"] : redisFaults.length === 0 ? ["other faults"] : redisFaults;
    for (const name of ["all", ...group]) groups.set(name, [...(groups.get(name) ?? []), ms]);
  }
  return new Map([...groups].sort(byName).map(([name, samples]) => [name, latencyOf(samples)]));
}

const first = ["all", "no fault", "other faults"];

function byName([a]: readonly [string, unknown], [b]: readonly [string, unknown]): number {
  const rank = (name: string) => (first.includes(name) ? first.indexOf(name) : first.length);
  return rank(a) - rank(b) || a.localeCompare(b);
}
