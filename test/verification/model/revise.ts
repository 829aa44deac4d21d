import type { Poll, Replica } from "./state.js";

/** A copy to be changed. Every part is named: to spread them takes twenty times as long, and it is done at every step. */
export function draftOf(replica: Replica): Draft {
  return {
    applied: replica.applied,
    horizon: replica.horizon,
    lastChange: replica.lastChange,
    leaseLeft: replica.leaseLeft,
    missedTick: replica.missedTick,
    clockLag: replica.clockLag,
    poll: replica.poll,
    read: replica.read,
    held: replica.held,
  };
}

type Draft = { -readonly [Part in keyof Replica]: Replica[Part] };

export function withPoll(replica: Replica, poll: Poll | undefined): Replica {
  const next = draftOf(replica);
  next.poll = poll;
  return next;
}

export function withRead(replica: Replica, read: Replica["read"]): Replica {
  const next = draftOf(replica);
  next.read = read;
  return next;
}

export function withHeld(replica: Replica, held: Replica["held"]): Replica {
  const next = draftOf(replica);
  next.held = held;
  return next;
}
