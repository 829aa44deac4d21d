import { commit, epochOf, LOST, truthAfterCommit } from "./database.js";
import { type Row, UNRELATED, waitOf } from "./design.js";
import type { Steps } from "./events.js";
import { type State, waitingCall } from "./state.js";

/** The writers that disable and enable rows. */
export const writerSteps: Steps = (state, { design, bounds }, announce) => {
  const { database, replica, call } = state;
  const wait = waitOf(design, bounds);
  for (const row of bounds.rows) {
    if (epochOf(database) === bounds.commits) break;
    if (row === UNRELATED) {
      // No decision depends on this row, so the return of its writer does not matter.
      announce("an unrelated row is changed", afterCommit(state, row, false, wait));
      continue;
    }
    const waited = design.writesWait ? 0 : wait;
    announce("a row is changed", afterCommit(state, row, false, waited));
    if (bounds.commitsLate && epochOf(database) > 0)
      announce(
        "a row is changed by a transaction that began before the last commit",
        afterCommit(state, row, true, waited),
      );
    if (bounds.losesWriters) announce("a row is changed, but its writer dies", afterCommit(state, row, false, LOST));
  }
  for (const row of bounds.rows) {
    const last = database.changed.lastIndexOf(row);
    if (database.waited[last] !== LOST) continue;
    const waited = database.waited.with(last, design.retriesWait ? 0 : wait);
    announce("a lost write is retried", { database: { ...database, waited }, replica, call });
  }
};

function afterCommit({ database, replica, call }: State, row: Row, late: boolean, waited: number): State {
  const committed = commit(database, row, late, waited);
  if (call === undefined || call === waitingCall) return { database: committed, replica, call };
  return { database: committed, replica, call: { ...call, truth: truthAfterCommit(call.truth, committed) } };
}
