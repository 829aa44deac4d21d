import { isUsable } from "./caller.js";
import { enabledAt } from "./database.js";
import type { Steps } from "./events.js";
import { passesFence } from "./fence.js";
import { draftOf, withCached, withRead } from "./revise.js";

/**
 * Everything else that the replica does meanwhile: any number of other calls, at any moment, and the maintenance of its
 * memory. The model lets them do so without the lease, which permits more than the implementation does. So a property
 * that holds here holds there, too.
 */
export const otherSteps: Steps = ({ database, replica, call }, { design }, announce) => {
  const { applied, horizon, cached, lastChange } = replica;
  if (applied === undefined) return;
  if (!replica.read) {
    const reading = withRead(replica, { snapshot: undefined });
    announce("another call starts a read", { database, replica: reading, call });
  }
  for (let epoch = 0; epoch <= applied; epoch++) {
    const versioned = { enabled: enabledAt(database, epoch), epoch };
    if (!isUsable(versioned, replica, design)) continue;
    announce("another call caches an entry from Redis", { database, replica: withCached(replica, versioned), call });
  }
  if (cached) announce("the cached value is evicted", { database, replica: withCached(replica, undefined), call });
  if (cached && cached.epoch < applied && passesFence(cached, replica)) {
    const confirmed = withCached(replica, { enabled: cached.enabled, epoch: applied });
    announce("the cached value is confirmed as of the applied epoch", { database, replica: confirmed, call });
  }
  for (let epoch = horizon + 1; epoch <= applied; epoch++) {
    const remembered = (change: number) => (change > epoch ? change : 0);
    const reduced = draftOf(replica);
    reduced.lastChange = [remembered(lastChange[0]), remembered(lastChange[1])];
    if (design.forgettingRaisesHorizon) reduced.horizon = epoch;
    announce("old changes are forgotten", { database, replica: reduced, call });
  }
};
