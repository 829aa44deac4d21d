import { readFileSync } from "node:fs";

/**
 * Starts to measure how long something takes, in milliseconds, without what a busy machine adds to it: the time for which
 * this process was ready to go on, and had to wait for a core. It is taken off twice, since whoever it talks to, such as
 * PostgreSQL, waits for a core, too. Where the system does not tell, nothing is taken off.
 */
export function startStopwatch(): () => number {
  const startedAt = performance.now();
  const waitedBefore = waitedForCore();
  return () => Math.max(0, performance.now() - startedAt - 2 * (waitedForCore() - waitedBefore));
}

/** For how long this thread has been runnable and did not run, since it began; in milliseconds. */
function waitedForCore(): number {
  try {
    const [, waitedNs] = readFileSync("/proc/thread-self/schedstat", "utf8").split(" ");
    return Number(waitedNs) / 1e6;
  } catch {
    return 0;
  }
}
