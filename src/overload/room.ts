import type { Limits } from "./limits.js";
import type { Shedding } from "./shedding.js";

/** What this process holds of requests that arrive or are being answered, over all connections of both ports. */
export interface Room {
  /**
   * Somebody brought so many bytes more, and has `theirs` here by now. Says whether they may stay; if not, that is
   * counted, and they are to be given back when they have gone.
   */
  take(bytes: number, theirs: number): boolean;
  giveBack(bytes: number): void;
}

/**
 * Beyond the limit of each client there is one for all of them together. When it is reached, who has little goes on: a
 * few with much to say must not be able to silence everyone.
 */
export function createRoom({ bytesInAll, bytesAlways }: Limits, shedding: Shedding): Room {
  let held = 0;
  return {
    take(bytes, theirs) {
      held += bytes;
      if (held <= bytesInAll || theirs <= bytesAlways) return true;
      shedding.count("memory");
      return false;
    },
    giveBack(bytes) {
      held -= bytes;
    },
  };
}
