import type { Log } from "../../observe/log.js";
import { createOutageLog } from "../../observe/outage-log.js";
import { classifyError } from "./errors.js";
import type { StatementObserver } from "./statement.js";

/** An outage ends with a success after this time without failures. */
const quietMs = 5_000;

/** Represents the statements that failed before they were sent, for lack of a connection. */
const unsent = "";

/**
 * Observes statements and logs persistent outages of the database. Reads may succeed all the time while writes fail. So
 * an outage ends when one of the failed statements succeeds and none has failed for a while. A failure to connect ends
 * with any success. The lease renewal logs a database that cannot be reached.
 */
export function observeOutages(
  log: Log,
  now: () => number = () => performance.now(),
): Pick<StatementObserver, "succeeded" | "failed"> {
  const outage = createOutageLog(log, "error");
  const failing = new Set<string>();
  let lastFailureAt = 0;

  return {
    succeeded(statement) {
      if (!outage.ongoing || now() < lastFailureAt + quietMs) return;
      failing.delete(unsent);
      if (failing.has(statement)) failing.clear();
      if (failing.size === 0) outage.recovered("the database works again");
    },
    failed(error) {
      const failure = classifyError(error);
      if (!failure?.persistent) return;
      const { message, code, query } = error as Error & { code: string; query?: string | null };
      outage.failed(`${failure.detail}; calls that need it are refused`, { reason: message, code });
      failing.add(query ?? unsent);
      lastFailureAt = now();
    },
  };
}
