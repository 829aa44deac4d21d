import type { Log } from "../observe/log.js";

/** What there was too little of: time of this process, time of the database, room for another connection or for bytes. */
export type Bottleneck = "event_loop" | "database" | "connections" | "memory";

/** Counts the calls and connections that are turned away. */
export interface ShedCounter {
  count(bottleneck: Bottleneck): void;
  /** How many so far. */
  readonly counts: Readonly<Record<Bottleneck, number>>;
}

/** Calm is told of once nobody has been turned away for this long. */
const calmMs = 5_000;

/** Says in the log when calls begin to be turned away, and when that is over: not for each, or the log would cost more. */
export function createShedCounter(log: Log): ShedCounter {
  const counts: Record<Bottleneck, number> = { event_loop: 0, database: 0, connections: 0, memory: 0 };
  const storms: Partial<Record<Bottleneck, NodeJS.Timeout>> = {};

  function begin(bottleneck: Bottleneck): NodeJS.Timeout {
    const before = counts[bottleneck];
    log.warn({ bottleneck }, "more is asked than can be served, and some of it is turned away");
    let seen = before;
    return setInterval(() => {
      const calm = counts[bottleneck] === seen;
      seen = counts[bottleneck];
      if (!calm) return;
      clearInterval(storms[bottleneck]);
      delete storms[bottleneck];
      log.info({ bottleneck, turnedAway: seen - before }, "nothing is turned away any more");
    }, calmMs).unref();
  }

  return {
    counts,
    count(bottleneck) {
      storms[bottleneck] ??= begin(bottleneck);
      counts[bottleneck] += 1;
    },
  };
}
