import { callSteps } from "./caller.js";
import { type Database, LOST } from "./database.js";
import type { Bounds, Design } from "./design.js";
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
 * The revocation protocol under every order of its steps: one replica and one call, all else being their surroundings.
 * More replicas would add nothing, for they meet only in Postgres, which they do not change, and in Redis, which here
 * returns anything that was ever true; nor would a restart, for the replica may take its first step at any time.
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

/** Time passes between any two steps, or does not: whoever is paused takes no step for many ticks. */
const clockSteps: Steps = ({ database, replica, call }, { design, bounds }, announce) => {
  const later = tickReplica(replica, design, bounds.lease);
  announce("a tick", { database: tickWriters(database, bounds.lease), replica: later, call });
  if (replica.clockLag === 0) return;
  announce("the replica reads its clock", { database, replica: { ...replica, clockLag: 0 }, call });
};

const actors = [clockSteps, writerSteps, pollSteps, readSteps, otherSteps, callSteps];

function tickWriters({ changed, late, waited }: Database, lease: number): Database {
  return { changed, late, waited: waited.map((ticks) => (ticks === LOST ? LOST : Math.min(ticks + 1, lease))) };
}

function tickReplica(replica: Replica, design: Design, lease: number): Replica {
  const { poll } = replica;
  const later = draftOf(replica);
  // How long ago the lease lapsed matters only to a clock that lags behind.
  later.leaseLeft = Math.max(replica.leaseLeft - 1, design.clockIsReadByTheCall ? 0 : -lease);
  later.clockLag = design.clockIsReadByTheCall ? 0 : Math.min(replica.clockLag + 1, lease);
  if (poll) {
    const { changesAt, epochAt, leased } = poll;
    later.poll = { age: Math.min(poll.age + 1, lease), changesAt, epochAt, leased };
  }
  return later;
}
