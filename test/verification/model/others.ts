import { isBelieved } from "./caller.js";
import { enabledAt } from "./database.js";
import type { Steps } from "./events.js";
import { passesFence } from "./fence.js";
import { draftOf, withHeld, withRead } from "./revise.js";

/**
 * Everything else the replica does meanwhile: any number of other calls, at any moment, and the upkeep of its memory.
 * That they may do so without the lease gives them more room than they have, so what holds here holds for them.
 */
export const otherSteps: Steps = ({ database, replica, call }, { design }, announce) => {
  const { applied, horizon, held, lastChange } = replica;
  if (applied === undefined) return;
  if (!replica.read) {
    const reading = withRead(replica, { snapshot: undefined });
    announce("another call starts a read", { database, replica: reading, call });
  }
  for (let asOf = 0; asOf <= applied; asOf++) {
    const fact = { enabled: enabledAt(database, asOf), asOf };
    if (!isBelieved(fact, replica, design)) continue;
    announce("another call holds a fact from Redis", { database, replica: withHeld(replica, fact), call });
  }
  if (held) announce("the held fact is evicted", { database, replica: withHeld(replica, undefined), call });
  if (held && held.asOf < applied && passesFence(held, replica)) {
    const confirmed = withHeld(replica, { enabled: held.enabled, asOf: applied });
    announce("the held fact is confirmed by what is applied", { database, replica: confirmed, call });
  }
  for (let epoch = horizon + 1; epoch <= applied; epoch++) {
    const remembered = (change: number) => (change > epoch ? change : 0);
    const left = draftOf(replica);
    left.lastChange = [remembered(lastChange[0]), remembered(lastChange[1])];
    if (design.forgettingRaisesHorizon) left.horizon = epoch;
    announce("old changes are forgotten", { database, replica: left, call });
  }
};
