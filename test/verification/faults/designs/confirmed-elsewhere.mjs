// The service's own design, except that a commit on any server confirms durability. Broken, because the repeated
// response may have been read on a primary that was lost meanwhile, and the promoted standby does not have the change.
import { createDurabilityBarrier as createSound } from "./durability-barrier.as-built.js";

export function createDurabilityBarrier(db) {
  const makeDurable = createSound(db);
  return (call, timeline) =>
    makeDurable(call, timeline).catch((error) => {
      if (!/has taken over/.test(error.message)) throw error;
    });
}
