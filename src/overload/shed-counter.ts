import type { Log } from "../observe/log.js";

/** The exhausted resource: time of this process, time of the database, connections, or the memory budget. */
export type Bottleneck = "event_loop" | "database" | "connections" | "memory";

/** Counts the calls and connections that are shed. */
export interface ShedCounter {
  count(bottleneck: Bottleneck): void;
  /** Since the process started. */
  readonly counts: Readonly<Record<Bottleneck, number>>;
}

/** The end of an overload is logged when nothing was shed for this long. */
const quietMs = 5_000;

/** Logs when shedding begins and when it ends. A line for each shed call would cost more than shedding it. */
export function createShedCounter(log: Log): ShedCounter {
  const counts: Record<Bottleneck, number> = { event_loop: 0, database: 0, connections: 0, memory: 0 };
  const overloads: Partial<Record<Bottleneck, NodeJS.Timeout>> = {};

  function begin(bottleneck: Bottleneck): NodeJS.Timeout {
    const before = counts[bottleneck];
    log.warn({ bottleneck }, "overloaded: shedding requests");
    let last = before;
    return setInterval(() => {
      const quiet = counts[bottleneck] === last;
      last = counts[bottleneck];
      if (!quiet) return;
      clearInterval(overloads[bottleneck]);
      delete overloads[bottleneck];
      log.info({ bottleneck, shed: last - before }, "no longer overloaded: shedding has ended");
    }, quietMs).unref();
  }

  return {
    counts,
    count(bottleneck) {
      overloads[bottleneck] ??= begin(bottleneck);
      counts[bottleneck] += 1;
    },
  };
}
