import type { Change } from "./change-store.js";
import { includes, type Snapshot, sees } from "./snapshot.js";

/**
 * A value that was read from the database, or that a Redis entry claims was, with the rows and the snapshot of the
 * read.
 */
export interface Versioned<T> {
  readonly value: T;
  /** The ids of the rows that the value was made from. */
  readonly dependsOn: readonly string[];
  /** The workspace that all these rows belong to. */
  readonly workspaceId: string;
  /** The value contains every change of these rows that this snapshot includes. */
  readonly snapshot: Snapshot;
}

/** The changes that this process knows of: all those that `present` includes and the horizon does not. */
export interface ChangeLog {
  /** The newest snapshot that this process knows all changes of. */
  readonly present: Snapshot;
  /** Grows whenever a value that was current before may no longer be. */
  readonly version: number;
  /** The number of changes appended so far, and the maximum number remembered. */
  readonly appended: number;
  readonly capacity: number;
  /** The timeline that the transaction ids belong to. Values that were read on another timeline must not be used. */
  readonly timeline: string;
  /** Adds the changes that `present` includes and the previous present did not. */
  append(present: Snapshot, changes: readonly Pick<Change, "id" | "xid">[]): void;
  /** Forgets all changes: `present` becomes the horizon, too. */
  reset(present: Snapshot, timeline: string): void;
  /** Whether no known change is missing in the value. A value from before the horizon is never current. */
  isCurrent(versioned: Pick<Versioned<unknown>, "dependsOn" | "workspaceId" | "snapshot">): boolean;
  /**
   * Whether a value of this snapshot will soon fall behind the horizon, because the changes after it are about to be
   * forgotten.
   */
  isAging(snapshot: Snapshot): boolean;
}

/** The last known change of a row, or of a whole workspace. */
interface LastChange {
  /** The transaction that made it, or the first known snapshot that includes it if there were several. */
  readonly madeBy: number | Snapshot;
  readonly batch: Batch;
}

/**
 * Changes that were appended one after the other. They share the snapshot that becomes the horizon when one of them is
 * evicted: a snapshot for each poll would take more memory than the changes.
 */
interface Batch {
  size: number;
  /** Includes all of them. */
  end: Snapshot;
}

/** How many batches the change log consists of when it is full. */
const maxBatches = 100;

/**
 * The fence: a value that was read before the last known change of one of its rows is not used any more, whether it
 * comes from memory, from Redis or from PostgreSQL.
 */
export function createChangeLog(beginning: Snapshot, firstTimeline: string, capacity = 100_000): ChangeLog {
  let present = beginning;
  /** All changes after this snapshot are known. Changes before it may have been forgotten, or were never read. */
  let horizon = beginning;
  /** The horizon reaches this snapshot after about half the capacity in further changes. */
  let middle = beginning;
  let appendedAtMiddle = 0;
  let appended = 0;
  let timeline = firstTimeline;
  let version = 0;
  /** By the id of a row, or of a workspace as a whole, in the order of appending. */
  const lastChange = new Map<string, LastChange>();
  let batch: Batch = { size: 0, end: beginning };

  function isMissing(id: string, snapshot: Snapshot): boolean {
    const madeBy = lastChange.get(id)?.madeBy;
    if (madeBy === undefined) return false;
    return typeof madeBy === "number" ? !sees(snapshot, madeBy) : !includes(snapshot, madeBy);
  }

  return {
    get present() {
      return present;
    },
    get version() {
      return version;
    },
    get appended() {
      return appended;
    },
    capacity,
    get timeline() {
      return timeline;
    },

    append(found, changes) {
      present = found;
      if (changes.length === 0) return;
      version += 1;
      appended += changes.length;
      if (batch.size >= capacity / maxBatches) batch = { size: 0, end: found };
      batch.size += changes.length;
      batch.end = found;
      for (const { id, xid } of changes) {
        lastChange.delete(id);
        lastChange.set(id, { madeBy: xid ?? found, batch });
      }
      for (const [id, evicted] of lastChange) {
        if (lastChange.size <= capacity) break;
        lastChange.delete(id);
        horizon = evicted.batch.end;
      }
      if (appended - appendedAtMiddle >= capacity / 2) {
        middle = found;
        appendedAtMiddle = appended;
      }
    },

    reset(found, newTimeline) {
      version += 1;
      lastChange.clear();
      present = found;
      horizon = found;
      middle = found;
      appendedAtMiddle = appended;
      timeline = newTimeline;
    },

    isCurrent({ dependsOn, workspaceId, snapshot }) {
      if (!includes(snapshot, horizon) || isMissing(allRowsOf(workspaceId), snapshot)) return false;
      for (const id of dependsOn) if (isMissing(id, snapshot)) return false;
      return true;
    },

    isAging: (snapshot) => !includes(snapshot, middle),
  };
}

/** The id that represents the rate limit overrides of a workspace. */
export function overridesOf(workspaceId: string): string {
  return `${workspaceId}/overrides`;
}

/** The id that represents every row of a workspace, for when too many of them changed to list each. */
export function allRowsOf(workspaceId: string): string {
  return `${workspaceId}/*`;
}
