/** Clocks that a test moves. */
export function createClocks() {
  let now = 1_000;
  let ahead = 1_700_000_000_000;
  return {
    monotonic: () => now,
    wall: () => now + ahead,
    /** Time passes. */
    pass(ms: number) {
      now += ms;
    },
    /** The wall clock is set, or the machine is suspended for this time. */
    jump(ms: number) {
      ahead += ms;
    },
  };
}
