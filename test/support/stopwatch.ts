import { readFileSync } from "node:fs";

/**
 * Starts to measure a duration in milliseconds, without the delay that a busy machine adds: the time in which this
 * thread was runnable and waited for a core. It is subtracted twice, because the peer, such as PostgreSQL, waits for a
 * core too. If the system does not report it, nothing is subtracted.
 */
export function startStopwatch(): () => number {
  const startedAt = performance.now();
  const waitedBefore = waitedForCore();
  return () => Math.max(0, performance.now() - startedAt - 2 * (waitedForCore() - waitedBefore));
}

/** How long this thread has been runnable without running since its start, in milliseconds. */
function waitedForCore(): number {
  try {
    const [, waitedNs] = readFileSync("/proc/thread-self/schedstat", "utf8").split(" ");
    return Number(waitedNs) / 1e6;
  } catch {
    return 0;
  }
}
