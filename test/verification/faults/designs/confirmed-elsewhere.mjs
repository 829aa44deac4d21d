// The service's own design, except that a commit counts on whichever server it is made. Broken, because what is repeated may
// have been read on a primary that was lost meanwhile, and the standby that took over does not have it.
import { createDurabilityBarrier as createSound } from "./make-durable.as-built.js";

export function createDurabilityBarrier(sql) {
  const makeDurable = createSound(sql);
  return (call, history) =>
    makeDurable(call, history).catch((error) => {
      if (!/has taken over/.test(error.message)) throw error;
    });
}
