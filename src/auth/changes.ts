import type { Change } from "./store.js";

/** Something read from the database, or claimed to have been: of these rows, as they stood at this epoch. */
export interface Fact<T> {
  readonly value: T;
  /** The ids of the rows that it was made from. */
  readonly rows: readonly string[];
  /** No change of these rows up to this epoch is missing in it. */
  readonly asOf: number;
}

/** The changes that this process knows of: all of them, between the horizon and the present epoch. */
export interface Changes {
  /** The present, as far as it is known here. */
  readonly epoch: number;
  /** The history that epochs are counted in: what was read in another is worth nothing. */
  readonly history: string;
  /** Adds what came between the last known epoch and this one; rows were last removed at `removedAt`. */
  learn(epoch: number, changes: readonly Change[], removedAt?: number): void;
  /** Forgets everything: the present becomes the horizon too. */
  startOver(epoch: number, history: string): void;
  /** Whether no known change is missing in the fact. Where less than everything is known, it is not trusted. */
  admit(fact: Pick<Fact<unknown>, "rows" | "asOf">): boolean;
}

/** The fence: what was read before a row's last known change is not used any more, wherever it comes from. */
export function createChanges(beginning: number, firstHistory: string, mostRemembered = 100_000): Changes {
  let epoch = beginning;
  let horizon = beginning;
  let history = firstHistory;
  /** The last change of each row, in the order of the changes. */
  const lastChange = new Map<string, number>();

  return {
    get epoch() {
      return epoch;
    },
    get history() {
      return history;
    },

    learn(present, changes, removedAt = 0) {
      horizon = Math.max(horizon, removedAt);
      for (const change of [...changes].sort((one, other) => one.epoch - other.epoch)) {
        lastChange.delete(change.id);
        lastChange.set(change.id, change.epoch);
      }
      epoch = present;
      for (const [id, changedAt] of lastChange) {
        if (lastChange.size <= mostRemembered) break;
        lastChange.delete(id);
        horizon = changedAt;
      }
    },

    startOver(present, itsHistory) {
      lastChange.clear();
      epoch = present;
      horizon = present;
      history = itsHistory;
    },

    admit({ rows, asOf }) {
      return asOf >= horizon && rows.every((id) => (lastChange.get(id) ?? horizon) <= asOf);
    },
  };
}
