import type { Log } from "./log.js";

/** Something that does not work for a while: the log tells of it once when it begins, and once when it is over. */
export interface Outage {
  /** To be called whenever it shows. */
  begin(details: object): void;
  /** To be called whenever all is well. */
  end(): void;
}

/** What the log says of an outage. */
export interface OutageSentences {
  readonly level: "warn" | "error";
  readonly begun: string;
  readonly over: string;
}

/** Keeps in mind what was said, so that the log is not filled with it, however often an outage shows. */
export function createOutage(log: Log, { level, begun, over }: OutageSentences): Outage {
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
