import type { Log } from "../../observe/log.js";
import { classifyError } from "./errors.js";
import type { StatementObserver } from "./statement.js";

/** The part of the watch that is about trouble. */
export type OutageLog = Pick<StatementObserver, "succeeded" | "failed">;

/** How long nothing may have failed before a success counts as the end. */
const quietMs = 5_000;

/** Stands for the statements that failed before they were sent, because no connection was to be had. */
const unsent = "";

/**
 * Says once that the database is in trouble, and once that it is over, however many statements fail meanwhile. What is
 * read may succeed all the time while nothing can be written; so it is over when one of the statements that had failed
 * succeeds, and none has failed for a while. Those that got no connection are over when any succeeds. A database that is
 * out of reach is told of by the lease.
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
      log.info("the database is well again");
    },
    failed(error) {
      const trouble = classifyError(error);
      if (!trouble?.persistent) return;
      const { message, code, query } = error as Error & { code: string; query?: string | null };
      if (failing.size === 0)
        log.error({ reason: message, code }, `${trouble.sentence}; calls that need it are refused`);
      failing.add(query ?? unsent);
      lastFailureAt = now();
    },
  };
}
