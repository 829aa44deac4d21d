import type { Log } from "./log.js";

/** Something that does not work for a while: the log tells of it once when it begins, and once when it is over. */
export interface Episode {
  /** To be called whenever it shows. */
  begin(details: object): void;
  /** To be called whenever all is well. */
  end(): void;
}

/** What the log says of an outage. */
export interface EpisodeMessages {
  readonly level: "warn" | "error";
  readonly begun: string;
  readonly over: string;
}

/** Keeps in mind what was said, so that the log is not filled with it, however often an outage shows. */
export function createEpisode(log: Log, { level, begun, over }: EpisodeMessages): Episode {
  let said = false;
  return {
    begin(details) {
      if (!said) log[level](details, begun);
      said = true;
    },
    end() {
      if (said) log.info(over);
      said = false;
    },
  };
}
