import type { Log } from "../../observe/log.js";
import { classifyError } from "./errors.js";
import type { StatementObserver } from "./statement.js";

/** Observes statements and logs outages of the database. */
export type OutageLog = Pick<StatementObserver, "succeeded" | "failed">;

/** An outage ends with a success after this time without failures. */
const quietMs = 5_000;

/** Represents the statements that failed before they were sent, for lack of a connection. */
const unsent = "";

/**
 * Logs a persistent outage once when it begins and once when it ends, however many statements fail. Reads may succeed all the
 * time while writes fail. So an outage ends when one of the failed statements succeeds and none has failed for a while.
 * A failure to connect ends with any success. The lease renewal logs a database that cannot be reached.
 */
export function createOutageLog(log: Log, now: () => number = () => performance.now()): OutageLog {
  const failing = new Set<string>();
  let lastFailureAt = 0;

  return {
    succeeded(statement) {
      if (failing.size === 0 || now() < lastFailureAt + quietMs) return;
      failing.delete(unsent);
      if (failing.has(statement)) failing.clear();
      if (failing.size > 0) return;
      log.info("the database works again");
    },
    failed(error) {
      const failure = classifyError(error);
      if (!failure?.persistent) return;
      const { message, code, query } = error as Error & { code: string; query?: string | null };
      if (failing.size === 0) log.error({ reason: message, code }, `${failure.detail}; calls that need it are refused`);
      failing.add(query ?? unsent);
      lastFailureAt = now();
    },
  };
}
