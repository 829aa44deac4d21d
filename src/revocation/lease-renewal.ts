import type { Log } from "../observe/log.js";
import { createOutageLog } from "../observe/outage-log.js";
import { systemClock } from "./clock.js";
import type { Lease } from "./lease.js";

/** The number of renewals within one lease time. With several, the lease survives one late answer. */
const renewalsPerLease = 3;

/** A single failure may be a short delay, and the next attempt follows at once. So an outage is logged after two. */
const minFailuresToLog = 2;

const cannotRenew = "the lease cannot be renewed; until it can, every call with a key is refused as unavailable";

/**
 * Renews the lease periodically until stopped, and logs when it cannot.
 *
 * @param onRenewed called after each renewal, which may have appended changes to the change log
 */
export function startLeaseRenewal(lease: Lease, onRenewed: () => void, log: Log) {
  const stopped = new AbortController();
  const renewals = { succeeded: 0, failed: 0 };
  const outage = createOutageLog(log, "error");

  async function renewUntilStopped(): Promise<void> {
    let failures = 0;
    while (!stopped.signal.aborted) {
      const next = systemClock.sleep(lease.leaseMs / renewalsPerLease);
      try {
        await lease.renew();
        onRenewed();
        renewals.succeeded += 1;
        failures = 0;
        outage.recovered("the lease is renewed again");
      } catch (error) {
        renewals.failed += 1;
        failures += 1;
        if (failures >= minFailuresToLog && !stopped.signal.aborted) outage.failed(cannotRenew, { err: error });
      }
      await next;
    }
  }

  void renewUntilStopped();
  return { renewals, stop: () => stopped.abort() };
}
