// The service's own design, except that a change waits for one lease time plus 1 %, by one clock. Broken, because the
// clock of the waiting replica may run faster than that of another replica that has a lease.
import { createLease as createSound } from "./lease.as-built.js";

export * from "./lease.as-built.js";

export function createLease(source, changes, leaseMs, clock) {
  const lease = createSound(source, changes, leaseMs, clock);
  return {
    ...lease,
    async waitOut() {
      await clock.sleep((leaseMs + 5) * 1.01 + 1);
      await lease.ensure();
    },
  };
}
