import type { Log } from "./log.js";

/** Logs an outage once when it begins and once when it ends, however many failures it has. */
export interface OutageLog {
  /** Whether an outage has begun and not ended. */
  readonly ongoing: boolean;
  /**
   * Called on every failure. Only the first one of an outage is logged.
   *
   * @param reason a failure with another reason than the previous one is logged, too
   */
  failed(message: string, details: object, reason?: string): void;
  /**
   * Called on every success. Only the first one after a failure is logged.
   *
   * @param message undefined: the end is not logged, because nobody waits for it
   */
  recovered(message?: string, details?: object): void;
}

/** @param level of the first line; the end of an outage is logged as `info` */
export function createOutageLog(log: Log, level: "warn" | "error"): OutageLog {
  let loggedReason: string | undefined;
  return {
    get ongoing() {
      return loggedReason !== undefined;
    },
    failed(message, details, reason = "") {
      if (reason !== loggedReason) log[level](details, message);
      loggedReason = reason;
    },
    recovered(message, details = {}) {
      if (loggedReason !== undefined && message !== undefined) log.info(details, message);
      loggedReason = undefined;
    },
  };
}
