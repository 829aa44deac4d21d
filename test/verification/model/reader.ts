import { answer } from "./caller.js";
import { enabledAt, epochOf } from "./database.js";
import type { Steps } from "./events.js";
import { passesFence } from "./fence.js";
import { withCached, withRead } from "./revise.js";
import type { Replica, Versioned } from "./state.js";

/** The read of PostgreSQL that all calls share. Its snapshot may be old when it arrives. */
export const readSteps: Steps = ({ database, replica, call }, { design }, announce) => {
  if (!replica.read) return;
  const versioned = replica.read.snapshot;
  if (!versioned) {
    const epoch = epochOf(database);
    const snapshot = { enabled: enabledAt(database, epoch), epoch };
    announce("the read takes its snapshot", { database, replica: withRead(replica, { snapshot }), call });
    return;
  }
  const waiting = call?.stage === "awaits read" ? call : undefined;
  const isCurrent = passesFence(versioned, replica);
  const filled = withCached(withRead(replica, undefined), cachedAfter(replica, versioned, design.fillsAreFenced));
  if (waiting && (isCurrent || !design.sharedReadsAreFenced)) {
    answer({ database, replica: filled, call }, waiting, versioned, "Postgres", design, announce);
  } else if (isCurrent) {
    announce("a read value is cached", { database, replica: filled, call });
  } else {
    const again = waiting ? withRead(filled, { snapshot: undefined }) : filled;
    announce("the fence refuses a late read", { database, replica: again, call });
  }
};

/** Without the fence, a value that arrives counts as the present state. */
function cachedAfter(replica: Replica, versioned: Versioned, isFenced: boolean): Versioned | undefined {
  if (passesFence(versioned, replica)) return versioned;
  return isFenced ? replica.cached : { enabled: versioned.enabled, epoch: replica.applied ?? 0 };
}
