import type { Change } from "./change-store.js";
import { includes, type Snapshot, sees } from "./snapshot.js";

/** Something read from the database, or claimed to have been: of these rows, as they stood in this snapshot. */
export interface Versioned<T> {
  readonly value: T;
  /** The ids of the rows that it was made from. */
  readonly dependsOn: readonly string[];
  /** The workspace that all of them belong to. */
  readonly workspaceId: string;
  /** No change of these rows that this includes is missing in it. */
  readonly snapshot: Snapshot;
}

/** The changes that this process knows of: all that the present includes, and the horizon does not. */
export interface ChangeLog {
  /** The present, as far as it is known here. */
  readonly present: Snapshot;
  /** Grows whenever a fact that was admitted before may not be admitted any more. */
  readonly version: number;
  /** How many changes were learnt so far, and how many are remembered at most. */
  readonly appended: number;
  readonly capacity: number;
  /** The history that transaction ids are counted in: what was read in another is worth nothing. */
  readonly timeline: string;
  /** Adds what the present includes beyond what was known so far. */
  append(present: Snapshot, changes: readonly Change[]): void;
  /** Forgets everything: the present becomes the horizon too. */
  reset(present: Snapshot, history: string): void;
  /** Whether no known change is missing in the fact. Where less than everything is known, it is not trusted. */
  isCurrent(fact: Pick<Versioned<unknown>, "dependsOn" | "workspaceId" | "snapshot">): boolean;
  /** Whether a fact that is still admitted will not be for much longer, because what came after it is about to be forgotten. */
  isAging(asOf: Snapshot): boolean;
}

/** What is known of the last change of a row, or of a whole workspace. */
interface LastChange {
  /** The transaction that made it; undefined if they were several. */
  readonly xid: number | undefined;
  /** The snapshot that it was found in. */
  readonly foundIn: Snapshot;
}

/** The fence: what was read before a row's last known change is not used any more, wherever it comes from. */
export function createChangeLog(beginning: Snapshot, firstHistory: string, mostRemembered = 100_000): ChangeLog {
  let present = beginning;
  let horizon = beginning;
  /** The horizon will be here when as many more changes were learnt as half of those that are remembered. */
  let middle = beginning;
  let learntAtMiddle = 0;
  let learnt = 0;
  let history = firstHistory;
  let version = 0;
  /** Of rows, and of workspaces as a whole, in the order in which they were learnt. */
  const lastChange = new Map<string, LastChange>();

  function isMissing(id: string, asOf: Snapshot): boolean {
    const last = lastChange.get(id);
    if (last === undefined) return false;
    return last.xid === undefined ? !includes(asOf, last.foundIn) : !sees(asOf, last.xid);
  }

  return {
    get present() {
      return present;
    },
    get version() {
      return version;
    },
    get appended() {
      return learnt;
    },
    capacity: mostRemembered,
    get timeline() {
      return history;
    },

    append(found, changes) {
      present = found;
      if (changes.length === 0) return;
      version += 1;
      learnt += changes.length;
      for (const { id, xid } of changes) {
        lastChange.delete(id);
        lastChange.set(id, { xid, foundIn: found });
      }
      for (const [id, { foundIn }] of lastChange) {
        if (lastChange.size <= mostRemembered) break;
        lastChange.delete(id);
        horizon = foundIn;
      }
      if (learnt - learntAtMiddle >= mostRemembered / 2) {
        middle = found;
        learntAtMiddle = learnt;
      }
    },

    reset(found, itsHistory) {
      version += 1;
      lastChange.clear();
      present = found;
      horizon = found;
      middle = found;
      learntAtMiddle = learnt;
      history = itsHistory;
    },

    isCurrent({ dependsOn: rows, workspaceId, snapshot: asOf }) {
      if (!includes(asOf, horizon) || isMissing(allRowsOf(workspaceId), asOf)) return false;
      for (const id of rows) if (isMissing(id, asOf)) return false;
      return true;
    },

    isAging: (asOf) => !includes(asOf, middle),
  };
}

/** Stands for every row of a workspace, where too many of them changed to name each. */
export function allRowsOf(workspaceId: string): string {
  return `${workspaceId}/*`;
}
