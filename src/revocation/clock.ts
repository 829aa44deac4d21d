import { setTimeout as sleep } from "node:timers/promises";

/** The clocks that a lease is measured with. */
export interface Clock {
  /** Milliseconds that never decrease, even if the time of day is set back. */
  monotonic(): number;
  /** The time of day. It continues while the machine is suspended. */
  wall(): number;
  sleep(ms: number): Promise<void>;
}

/** The clocks of this machine. */
export const systemClock: Clock = {
  monotonic: () => performance.now(),
  wall: () => Date.now(),
  sleep: (ms) => sleep(ms, undefined, { ref: false }),
};
