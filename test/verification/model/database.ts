import { KEY, type Row, UNRELATED, WORKSPACE } from "./design.js";

/**
 * PostgreSQL. Each commit enables or disables one row. All rows are enabled at first. A snapshot includes the commits
 * up to one of them. The model represents it by their number, the epoch.
 */
export interface Database {
  /** The row that each commit changed. */
  readonly changed: readonly Row[];
  /**
   * For each commit, whether its transaction got its id before the previous commit, and so a lower id than later ones.
   */
  readonly late: readonly boolean[];
  /**
   * For each commit, how many ticks its writer has waited. The write has returned when this equals the wait of a write.
   */
  readonly waited: readonly number[];
}

/** The writer died, or its client was disconnected: the write was never acknowledged. */
export const LOST = -1;

/** A set of the rows that the decision depends on, one bit each. */
export type Rows = number;
export const allRows: Rows = (1 << WORKSPACE) | (1 << KEY);

export const emptyDatabase: Database = { changed: [], late: [], waited: [] };

export function epochOf(database: Database): number {
  return database.changed.length;
}

export function commit(database: Database, row: Row, late: boolean, waited: number): Database {
  return {
    changed: [...database.changed, row],
    late: [...database.late, late],
    waited: [...database.waited, waited],
  };
}

/** The rows that were enabled in that epoch. */
export function enabledAt(database: Database, epoch: number): Rows {
  let enabled = allRows;
  for (let index = 0; index < epoch; index++) enabled ^= bit(database.changed[index]);
  return enabled;
}

/** The last commit that changed the row, as a snapshot of that epoch shows it; 0 if it never changed. */
export function stampAt(database: Database, row: Row, epoch: number): number {
  return epoch === 0 ? 0 : database.changed.lastIndexOf(row, epoch - 1) + 1;
}

/** The states of each row that a call may return. */
export interface Truth {
  readonly enabled: Rows;
  readonly disabled: Rows;
}

/**
 * The states that a call that begins now may return: for each row the state after the last write that has returned, and
 * every state since. This is a little stricter than the promise: a write that has begun but not committed permits
 * nothing.
 */
export function truthFrom(database: Database, wait: number): Truth {
  let enabled = allRows;
  let disabled = 0;
  for (let index = 0; index < database.changed.length; index++) {
    const row = bit(database.changed[index]);
    const isEnabled = (enabledAt(database, index + 1) & row) !== 0;
    const hasReturned = database.waited[index] === wait;
    enabled = isEnabled ? enabled | row : hasReturned ? enabled & ~row : enabled;
    disabled = !isEnabled ? disabled | row : hasReturned ? disabled & ~row : disabled;
  }
  return { enabled, disabled };
}

/** The states that a call in flight may return after one more commit. */
export function truthAfterCommit(truth: Truth, database: Database): Truth {
  const row = bit(database.changed.at(-1));
  return (enabledAt(database, epochOf(database)) & row) !== 0
    ? { ...truth, enabled: truth.enabled | row }
    : { ...truth, disabled: truth.disabled | row };
}

/** Whether a decision based on these enabled rows is one that the call must not return. */
export function isFalse(enabled: Rows, truth: Truth): boolean {
  if (enabled === allRows) return truth.enabled !== allRows;
  // The workspace is checked first, and a refusal names one row only.
  const named = bit((enabled & bit(WORKSPACE)) === 0 ? WORKSPACE : KEY);
  return (truth.disabled & named) === 0;
}

export function isAccepted(enabled: Rows): boolean {
  return enabled === allRows;
}

function bit(row: Row | undefined): Rows {
  return row === undefined || row === UNRELATED ? 0 : 1 << row;
}
