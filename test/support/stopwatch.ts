import { readFileSync } from "node:fs";

/**
 * Starts to measure a duration in milliseconds, without the delay that a busy machine adds. What the system does not report
 * is not subtracted.
 *
 * - The time in which this thread was runnable and waited for a core. It is subtracted twice, because the peer, such as
 *   PostgreSQL, waits for a core too.
 * - The time in which the host gave the core that lost most of it to other machines.
 */
export function startStopwatch(): () => number {
  const startedAt = performance.now();
  const waitedBefore = waitedForCore();
  const stolenBefore = stolenFromCores();
  return () => {
    const waited = waitedForCore() - waitedBefore;
    const stolen = Math.max(0, ...stolenFromCores().map((ms, core) => ms - (stolenBefore[core] ?? 0)));
    return Math.max(0, performance.now() - startedAt - 2 * waited - stolen);
  };
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
