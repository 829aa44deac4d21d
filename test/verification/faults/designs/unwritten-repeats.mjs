// The service's own design, except that a response that only repeats an earlier one commits nothing. Broken, because it
// acknowledges changes that the standby does not have.
export function createDurabilityBarrier() {
  return async () => {};
}
