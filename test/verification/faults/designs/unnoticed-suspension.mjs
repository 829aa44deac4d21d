// The library's own design, except that it does not compare its two clocks. Broken, because the monotonic clock stands
// still while a machine is suspended.
import { createLocalGrant as createSound } from "./grant.as-built.js";

export function createLocalGrant({ monotonic }) {
  return createSound({ monotonic, wall: monotonic });
}
