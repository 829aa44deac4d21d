import { callSteps } from "./caller.js";
import { type Database, LOST } from "./database.js";
import { type Bounds, type Design, waitOf } from "./design.js";
import type { Event, Steps } from "./events.js";
import type { Machine } from "./explore.js";
import { keyOf } from "./key.js";
import { otherSteps } from "./others.js";
import { pollSteps } from "./poller.js";
import { readSteps } from "./reader.js";
import { draftOf } from "./revise.js";
import { initial, type Replica, type State } from "./state.js";
import { writerSteps } from "./writers.js";

/**
 * The revocation protocol under every order of its steps: one replica and one call, with everything else as their
 * environment. More replicas would add nothing: they share only PostgreSQL, which they do not change, and Redis, which
 * in the model returns any state that ever existed. A restart would add nothing either, because the replica may take
 * its first step at any time.
 */
export function createMachine(design: Design, bounds: Bounds): Machine<State, Event> {
  const setting = { design, bounds };
  return {
    initial,
    key: keyOf,
    step: (state, announce) => {
      for (const steps of actors) steps(state, setting, announce);
    },
  };
}

/** Any number of ticks may pass between two steps. A paused actor takes no step for many ticks. */
const clockSteps: Steps = ({ database, replica, call }, { design, bounds }, announce) => {
  const later = tickReplica(replica, design, bounds.lease);
  const waited = tickWriters(database, waitOf(design, bounds));
  announce("a tick", { database: waited, replica: later, call });
  // A tick that a slow clock does not count. It matters only while the replica measures time.
  const { poll } = replica;
  const isMeasuring = replica.leaseLeft > 0 || poll !== undefined;
  if (bounds.slowClock && isMeasuring && !replica.missedTick && !poll?.missedTick) {
    const slow = draftOf(replica);
    slow.missedTick = replica.leaseLeft > 0;
    slow.poll = poll && { ...poll, missedTick: true };
    announce("a tick that the replica's clock misses", { database: waited, replica: slow, call });
  }
  if (replica.clockLag === 0) return;
  announce("the replica reads its clock", { database, replica: { ...replica, clockLag: 0 }, call });
};

const actors = [clockSteps, writerSteps, pollSteps, readSteps, otherSteps, callSteps];

function tickWriters({ changed, late, waited }: Database, wait: number): Database {
  return { changed, late, waited: waited.map((ticks) => (ticks === LOST ? LOST : Math.min(ticks + 1, wait))) };
}

function tickReplica(replica: Replica, design: Design, lease: number): Replica {
  const { poll } = replica;
  const later = draftOf(replica);
  // The time since the lease ended matters only if the clock reading is old.
  later.leaseLeft = Math.max(replica.leaseLeft - 1, design.clockIsReadByTheCall ? 0 : -lease);
  later.clockLag = design.clockIsReadByTheCall ? 0 : Math.min(replica.clockLag + 1, lease);
  // A missed tick has no effect any more when the lease has ended.
  later.missedTick = replica.missedTick && later.leaseLeft > (design.clockIsReadByTheCall ? 0 : -lease);
  if (poll) {
    const { changesAt, epochAt, leased, missedTick } = poll;
    later.poll = { age: Math.min(poll.age + 1, lease), changesAt, epochAt, leased, missedTick };
  }
  return later;
}
