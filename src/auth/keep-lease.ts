import { setTimeout as sleep } from "node:timers/promises";
import type { Log } from "../observe/log.js";
import type { Clock, Lease } from "./lease.js";

/** How often a lease is renewed within its own time, so that one answer may be late without its being lost. */
const renewalsPerLease = 3;

/** Renews the lease again and again until stopped, and says when it cannot. */
export function keepLease(lease: Lease, log: Log) {
  const stopped = new AbortController();
  const renewals = { succeeded: 0, failed: 0 };
  const everyMs = lease.leaseMs / renewalsPerLease;

  async function renewForever(): Promise<void> {
    let failing = false;
    while (!stopped.signal.aborted) {
      const next = systemClock.sleep(everyMs);
      try {
        await lease.renew();
        renewals.succeeded += 1;
        if (failing) log.info("Postgres answers again");
        failing = false;
      } catch (error) {
        renewals.failed += 1;
        if (!failing && !stopped.signal.aborted) {
          log.error({ err: error }, "Postgres does not answer; until it does, every call is refused as unavailable");
        }
        failing = true;
      }
      await next;
    }
  }

  void renewForever();
  return { renewals, stop: () => stopped.abort() };
}

/** The clocks of this machine. */
export const systemClock: Clock = {
  monotonic: () => performance.now(),
  wall: () => Date.now(),
  sleep: (ms) => sleep(ms, undefined, { ref: false }),
};
