import type { Replica, Versioned } from "./state.js";

/** Whether the value contains every change that is known, or that may have been forgotten. */
export function passesFence(versioned: Versioned, { horizon, lastChange }: Replica): boolean {
  return versioned.epoch >= horizon && versioned.epoch >= lastChange[0] && versioned.epoch >= lastChange[1];
}
