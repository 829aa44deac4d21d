import { answer } from "./caller.js";
import { enabledAt, epochOf } from "./database.js";
import type { Steps } from "./events.js";
import { passesFence } from "./fence.js";
import { withHeld, withRead } from "./revise.js";
import type { Fact, Replica } from "./state.js";

/** The read of Postgres that all calls share: its snapshot may be old when it arrives. */
export const readSteps: Steps = ({ database, replica, call }, { design }, announce) => {
  if (!replica.read) return;
  const fact = replica.read.snapshot;
  if (!fact) {
    const epoch = epochOf(database);
    const snapshot = { enabled: enabledAt(database, epoch), asOf: epoch };
    announce("the read takes its snapshot", { database, replica: withRead(replica, { snapshot }), call });
    return;
  }
  const waiting = call?.stage === "awaits read" ? call : undefined;
  const isFresh = passesFence(fact, replica);
  const filled = withHeld(withRead(replica, undefined), heldAfter(replica, fact, design.fillsAreFenced));
  if (waiting && (isFresh || !design.sharedReadsAreFenced)) {
    answer({ database, replica: filled, call }, waiting, fact, "Postgres", design, announce);
  } else if (isFresh) {
    announce("a read is held", { database, replica: filled, call });
  } else {
    const again = waiting ? withRead(filled, { snapshot: undefined }) : filled;
    announce("the fence refuses a late read", { database, replica: again, call });
  }
};

/** Without the fence, what arrives counts as the state of now. */
function heldAfter(replica: Replica, fact: Fact, isFenced: boolean): Fact | undefined {
  if (passesFence(fact, replica)) return fact;
  return isFenced ? replica.held : { enabled: fact.enabled, asOf: replica.applied ?? 0 };
}
