import type { Log } from "./log.js";

/** An outage, which is logged once when it begins and once when it ends. */
export interface Episode {
  /** Called on every failure. Only the first one is logged. */
  begin(details: object): void;
  /** Called on every success. Only the first one after a failure is logged. */
  end(): void;
}

/** The log lines of an outage, and the level of the first. */
export interface EpisodeMessages {
  readonly level: "warn" | "error";
  readonly begun: string;
  readonly over: string;
}

/** Remembers whether the outage is logged already, so that repeated failures do not fill the log. */
export function createEpisode(log: Log, { level, begun, over }: EpisodeMessages): Episode {
  let logged = false;
  return {
    begin(details) {
      if (!logged) log[level](details, begun);
      logged = true;
    },
    end() {
      if (logged) log.info(over);
      logged = false;
    },
  };
}
