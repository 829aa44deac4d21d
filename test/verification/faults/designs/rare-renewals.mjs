// The service's own design, except that it polls for changes a third as often, with a lease three times as long, and
// changes wait for that lease. Broken, because a resumed replica applies changes later than the promise allows: it must
// poll first.
import { createLease as createSound } from "./lease.as-built.js";

export * from "./lease.as-built.js";

export function createLease(source, changes, leaseMs, clock) {
  const changedSince = async (seen) => {
    const found = await source.changedSince(seen);
    return { ...found, leaseMs: 3 * found.leaseMs, waitMs: 3 * found.waitMs };
  };
  return createSound({ ...source, changedSince }, changes, 3 * leaseMs, clock);
}
