import type { Log } from "../observe/log.js";
import { systemClock } from "./clock.js";
import type { Lease } from "./lease.js";

/** How often a lease is renewed within its own time, so that one answer may be late without its being lost. */
const renewalsPerLease = 3;

/** One failure may be a slow moment; the next attempt follows at once. */
const failuresToSay = 2;

/** Renews the lease again and again until stopped, and says when it cannot. */
export function keepLease(lease: Lease, log: Log) {
  const stopped = new AbortController();
  const renewals = { succeeded: 0, failed: 0 };
  const everyMs = lease.leaseMs / renewalsPerLease;

  async function renewForever(): Promise<void> {
    let failures = 0;
    while (!stopped.signal.aborted) {
      const next = systemClock.sleep(everyMs);
      try {
        await lease.renew();
        renewals.succeeded += 1;
        if (failures >= failuresToSay) log.info("the lease is renewed again");
        failures = 0;
      } catch (error) {
        renewals.failed += 1;
        failures += 1;
        if (failures === failuresToSay && !stopped.signal.aborted) {
          log.error(
            { err: error },
            "the lease cannot be renewed; until it can, every call with a key is refused as unavailable",
          );
        }
      }
      await next;
    }
  }

  void renewForever();
  return { renewals, stop: () => stopped.abort() };
}
