import { readFileSync } from "node:fs";

/**
 * Starts to measure a duration in milliseconds, without the delay that a busy machine adds. Subtracted are, if the system
 * reports them:
 *
 * - The time in which this thread was runnable and waited for a core. It is subtracted twice, because the peer, such as
 *   PostgreSQL, waits for a core too.
 * - The time in which the host ran other machines (steal), on the core with the most of it.
 *
 * At least a quarter of the real time remains, so that a long wait is never taken for the delay of a busy machine alone.
 */
export function startStopwatch(): () => number {
  const startedAt = performance.now();
  const waitedBefore = waitedForCore();
  const stolenBefore = stolenFromCores();
  return () => {
    const waited = waitedForCore() - waitedBefore;
    const stolen = Math.max(0, ...stolenFromCores().map((ms, core) => ms - (stolenBefore[core] ?? 0)));
    const total = performance.now() - startedAt;
    return Math.max(total / 4, total - 2 * waited - stolen);
  };
}

/** The median of several durations, because any one may be long on a busy machine. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

/** How long this thread has been runnable without running since its start, in milliseconds. */
function waitedForCore(): number {
  const [, waitedNs = 0] = read("/proc/thread-self/schedstat").split(" ");
  return Number(waitedNs) / 1e6;
}

/** How long the host has not run each core of this machine, although it had work, in milliseconds. */
function stolenFromCores(): number[] {
  const ticks = read("/proc/stat").matchAll(/^cpu\d+(?: \d+){7} (\d+)/gm);
  return [...ticks].map(([, stolen]) => 10 * Number(stolen));
}

function read(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}
