import { KEY, type Row, UNRELATED, WORKSPACE } from "./design.js";

/**
 * Postgres. Each commit enabled or disabled one row, all being enabled at first. A snapshot sees the commits up to one of
 * them: their number, the epoch, stands for it here.
 */
export interface Database {
  /** The row that each commit changed. */
  readonly changed: readonly Row[];
  /** For each commit whether its transaction had its id before the commit before it, and so before later ones. */
  readonly late: readonly boolean[];
  /** For each commit how long its writer has waited, in ticks; when that is as long as a write waits, it has returned. */
  readonly waited: readonly number[];
}

/** The writer died, or its caller was cut off: nobody was ever told that the write is done. */
export const LOST = -1;

/** A set of the rows that matter to the decision, one bit each. */
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

/** What a call may be told of each row. */
export interface Truth {
  readonly enabled: Rows;
  readonly disabled: Rows;
}

/**
 * What a call that begins now may be told: of each row the state that the last write to return has left, and every
 * state since. It is the promise and a little more, for a write that has begun but not committed excuses nothing.
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

/** What a call under way may be told after one more commit. */
export function truthAfterCommit(truth: Truth, database: Database): Truth {
  const row = bit(database.changed.at(-1));
  return (enabledAt(database, epochOf(database)) & row) !== 0
    ? { ...truth, enabled: truth.enabled | row }
    : { ...truth, disabled: truth.disabled | row };
}

/** Whether a decision that rests on these enabled rows tells the caller something that may not be said. */
export function isFalse(enabled: Rows, truth: Truth): boolean {
  if (enabled === allRows) return truth.enabled !== allRows;
  // The workspace is judged first: a refusal names one row only.
  const named = bit((enabled & bit(WORKSPACE)) === 0 ? WORKSPACE : KEY);
  return (truth.disabled & named) === 0;
}

export function isAccepted(enabled: Rows): boolean {
  return enabled === allRows;
}

function bit(row: Row | undefined): Rows {
  return row === undefined || row === UNRELATED ? 0 : 1 << row;
}
