import { setTimeout as sleep } from "node:timers/promises";

/** Time as a lease is counted by. */
export interface Clock {
  /** Milliseconds that never go back, whatever is done to the time of day. */
  monotonic(): number;
  /** The time of day, which goes on while the machine is suspended. */
  wall(): number;
  sleep(ms: number): Promise<void>;
}

/** The clocks of this machine. */
export const systemClock: Clock = {
  monotonic: () => performance.now(),
  wall: () => Date.now(),
  sleep: (ms) => sleep(ms, undefined, { ref: false }),
};
