// The library's own design, except that a grant counts from its arrival. Broken, because the grant may have been delayed
// for any time.
import { createLocalGrant as createSound } from "./grant.as-built.js";

export function createLocalGrant(clock) {
  const sound = createSound(clock);
  let validUntil = 0;
  return {
    ...sound,
    get unanswered() {
      return sound.unanswered;
    },
    accept(ping, remainingMs) {
      if (!sound.accept(ping, remainingMs)) return false;
      validUntil = clock.monotonic() + 0.99 * remainingMs - 5;
      return true;
    },
    remaining: () => (sound.hasJumped() ? 0 : Math.max(0, validUntil - clock.monotonic())),
  };
}
