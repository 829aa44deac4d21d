import { createEpisode } from "../observe/episode.js";
import type { Log } from "../observe/log.js";
import { systemClock } from "./clock.js";
import type { Lease } from "./lease.js";

/** How often a lease is renewed within its own time, so that one answer may be late without its being lost. */
const renewalsPerLease = 3;

/** One failure may be a slow moment; the next attempt follows at once. */
const failuresToSay = 2;

/**
 * Renews the lease again and again until stopped, and says when it cannot.
 *
 * @param renewed called after each renewal, by which changes may have been learnt
 */
export function startLeaseRenewal(lease: Lease, renewed: () => void, log: Log) {
  const stopped = new AbortController();
  const renewals = { succeeded: 0, failed: 0 };
  const outage = createEpisode(log, {
    level: "error",
    begun: "the lease cannot be renewed; until it can, every call with a key is refused as unavailable",
    over: "the lease is renewed again",
  });

  async function renewForever(): Promise<void> {
    let failures = 0;
    while (!stopped.signal.aborted) {
      const next = systemClock.sleep(lease.leaseMs / renewalsPerLease);
      try {
        await lease.renew();
        renewed();
        renewals.succeeded += 1;
        failures = 0;
        outage.end();
      } catch (error) {
        renewals.failed += 1;
        failures += 1;
        if (failures >= failuresToSay && !stopped.signal.aborted) outage.begin({ err: error });
      }
      await next;
    }
  }

  void renewForever();
  return { renewals, stop: () => stopped.abort() };
}
