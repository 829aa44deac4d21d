import type { Log } from "../observe/log.js";
import { createOutageLog } from "../observe/outage-log.js";

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
  const overloads = {
    event_loop: createOutageLog(log, "warn"),
    database: createOutageLog(log, "warn"),
    connections: createOutageLog(log, "warn"),
    memory: createOutageLog(log, "warn"),
  };

  function begin(bottleneck: Bottleneck): void {
    const before = counts[bottleneck];
    overloads[bottleneck].failed("overloaded: shedding requests", { bottleneck });
    let last = before;
    const timer = setInterval(() => {
      const quiet = counts[bottleneck] === last;
      last = counts[bottleneck];
      if (!quiet) return;
      clearInterval(timer);
      overloads[bottleneck].recovered("no longer overloaded: shedding has ended", { bottleneck, shed: last - before });
    }, quietMs).unref();
  }

  return {
    counts,
    count(bottleneck) {
      if (!overloads[bottleneck].ongoing) begin(bottleneck);
      counts[bottleneck] += 1;
    },
  };
}
