import { commit, epochOf, LOST, truthAfterCommit } from "./database.js";
import { type Row, UNRELATED, waitOf } from "./design.js";
import type { Steps } from "./events.js";
import { resting, type State } from "./state.js";

/** Whoever disables and enables. */
export const writerSteps: Steps = (state, { design, bounds }, announce) => {
  const { database, replica, call } = state;
  const wait = waitOf(design, bounds);
  for (const row of bounds.rows) {
    if (epochOf(database) === bounds.commits) break;
    if (row === UNRELATED) {
      // Nothing is promised of this row, so when its writer returns is nobody's concern.
      announce("something else is changed", afterCommit(state, row, wait));
      continue;
    }
    announce("a row is changed", afterCommit(state, row, design.writesWait ? 0 : wait));
    if (bounds.losesWriters) announce("a row is changed, but its writer is lost", afterCommit(state, row, LOST));
  }
  for (const row of bounds.rows) {
    const last = database.changed.lastIndexOf(row);
    if (database.waited[last] !== LOST) continue;
    const waited = database.waited.with(last, design.retriesWait ? 0 : wait);
    announce("a lost write is tried again", { database: { changed: database.changed, waited }, replica, call });
  }
};

function afterCommit({ database, replica, call }: State, row: Row, waited: number): State {
  const committed = commit(database, row, waited);
  if (call === undefined || call === resting) return { database: committed, replica, call };
  return { database: committed, replica, call: { ...call, truth: truthAfterCommit(call.truth, committed) } };
}
