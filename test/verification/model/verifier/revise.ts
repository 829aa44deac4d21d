import type { Call, Message, Ping, Poll, Replica, State, Stream } from "./state.js";

/** A mutable copy. Each property is listed, because a spread takes many times as long and every step makes a copy. */
export function draftOf(state: State): Draft {
  return {
    database: state.database,
    replica: state.replica,
    stream: state.stream,
    cached: state.cached,
    right: state.right,
    clockLag: state.clockLag,
    call: state.call,
  };
}

type Draft = { -readonly [Part in keyof State]: State[Part] };

export function withReplica(state: State, replica: Replica, stream = state.stream): State {
  const next = draftOf(state);
  next.replica = replica;
  next.stream = stream;
  return next;
}

export function withStream(state: State, stream: Stream): State {
  const next = draftOf(state);
  next.stream = stream;
  return next;
}

export function withCached(state: State, cached: number | undefined): State {
  const next = draftOf(state);
  next.cached = cached;
  return next;
}

export function withCall(state: State, call: Call | undefined): State {
  const next = draftOf(state);
  next.call = call;
  return next;
}

export function withPoll({ known, leaseLeft, read }: Replica, poll: Poll | undefined): Replica {
  return { known, leaseLeft, poll, read };
}

export function withRead({ known, leaseLeft, poll }: Replica, read: number | undefined): Replica {
  return { known, leaseLeft, poll, read };
}

export function withPings(stream: Stream, pings: readonly Ping[], unanswered = stream.unanswered): Stream {
  const { queue, mustInvalidateAll, isWatched } = stream;
  return { queue, pings, unanswered, mustInvalidateAll, isWatched };
}

export function withAnswered({ queue, pings, mustInvalidateAll, isWatched }: Stream): Stream {
  return { queue, pings, unanswered: undefined, mustInvalidateAll, isWatched };
}

export function withQueue(
  stream: Stream,
  queue: readonly Message[],
  mustInvalidateAll = stream.mustInvalidateAll,
): Stream {
  const { pings, unanswered, isWatched } = stream;
  return { queue, pings, unanswered, mustInvalidateAll, isWatched };
}
