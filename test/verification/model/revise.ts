import type { Poll, Replica } from "./state.js";

/** A mutable copy. Each property is listed, because a spread takes twenty times as long and every step makes a copy. */
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
    cached: replica.cached,
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

export function withCached(replica: Replica, cached: Replica["cached"]): Replica {
  const next = draftOf(replica);
  next.cached = cached;
  return next;
}
