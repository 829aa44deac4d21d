// The service's own design, except that invalidations are sent in batches. Broken, because a grant that is sent before
// its batch gives the right to use key state that has changed.
import { createDelegation as createSound } from "./delegation.as-built.js";

const batchMs = 500;

export function createDelegation(...sources) {
  const sound = createSound(...sources);
  return {
    ...sound,
    get openStreams() {
      return sound.openStreams;
    },
    invalidate: (changes) => void setTimeout(sound.invalidate, batchMs, changes),
  };
}
