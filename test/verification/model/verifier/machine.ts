import type { Announce, Machine } from "../explore.js";
import type { Bounds, Design } from "./design.js";
import { createKey } from "./key.js";
import {
  draftOf,
  withAnswered,
  withCached,
  withCall,
  withPings,
  withPoll,
  withQueue,
  withRead,
  withReplica,
  withStream,
} from "./revise.js";
import {
  type Database,
  initial,
  type Known,
  type Message,
  otherReplica,
  type Ping,
  type Replica,
  type Right,
  type State,
  type Stream,
} from "./state.js";

export type Event =
  | "a tick"
  | "a tick while the verifier is suspended"
  | "the verifier reads its clock"
  | "the key is changed"
  | "the verifier's own key is revoked"
  | "a poll is sent"
  | "the poll takes its snapshot"
  | "the poll extends the lease"
  | "the poll is applied"
  | "the poll is applied, without the changes in detail"
  | "the poll fails"
  | "a key state is read"
  | "the fence refuses a key state"
  | "a key state is sent"
  | "changes are written to the stream from now on"
  | "a stream is opened"
  | "a stream to another replica is opened"
  | "the stream ends"
  | "a ping is sent"
  | "a ping arrives"
  | "a grant is sent"
  | "a message is dropped"
  | "a key state arrives"
  | "an invalidation arrives"
  | "an invalidation of everything arrives"
  | "a grant arrives"
  | "a grant for an unknown ping arrives"
  | "a message overtakes another"
  | "a call reads the right"
  | "a call reads the key state"
  | "a call asks the service"
  | "accepted locally"
  | "refused locally";

interface Setting {
  readonly design: Design;
  readonly bounds: Bounds;
}

type Steps = (state: State, setting: Setting, announce: Announce<State, Event>) => void;

/**
 * A verifier and the replica of its stream, under every order of their steps. The key is enabled, and each change
 * disables or enables it. A local call is wrong if the key state that it uses lacks a change that was acknowledged
 * before it began, or if the verifier's own key was revoked before.
 *
 * More verifiers would add nothing, because they share nothing. Other replicas are one that knows nothing.
 */
export function createMachine(design: Design, bounds: Bounds): Machine<State, Event> {
  const setting = { design, bounds };
  return {
    initial: { ...initial, right: noRight(setting) },
    key: createKey(bounds),
    step: (state, announce) => {
      for (const steps of actors) steps(state, setting, announce);
    },
  };
}

/** The time since the right ended matters only if the clock reading is old. */
const noRight = ({ design, bounds }: Setting): Right => ({
  left: design.clockIsReadByTheCall ? 0 : -bounds.lease,
  isJumped: false,
});

const clockSteps: Steps = (state, { design, bounds }, announce) => {
  const { lease } = bounds;
  const { database, replica, stream, right } = state;
  const aged: Database = {
    key: database.key,
    callerRevoked: database.callerRevoked,
    keyWaits: database.keyWaits.map((wait) => Math.min(wait + 1, lease)),
    callerWait: database.callerRevoked ? Math.min(database.callerWait + 1, lease) : 0,
  };
  const { poll, leaseLeft } = replica;
  const later: Replica = {
    known: replica.known,
    read: replica.read,
    leaseLeft: Math.max(0, leaseLeft - 1),
    poll: poll && { found: poll.found, isLeased: poll.isLeased, age: Math.min(poll.age + 1, lease) },
  };
  const least = noRight({ design, bounds }).left;
  const left = Math.max(right.left - 1, least);
  const next = draftOf(state);
  next.database = aged;
  next.replica = later;
  next.stream = stream && withPings(stream, stream.pings.map(agePing(lease)));
  next.right = { left, isJumped: right.isJumped && left > least };
  next.clockLag = design.clockIsReadByTheCall ? 0 : Math.min(state.clockLag + 1, lease);
  announce("a tick", next);
  const measures = right.left > 0 || (stream?.pings.length ?? 0) > 0;
  if (bounds.suspends && measures) {
    const suspended = draftOf(state);
    suspended.database = aged;
    suspended.replica = later;
    suspended.stream = stream && withPings(stream, stream.pings.map(jumpPing(lease)));
    suspended.right = { left: right.left, isJumped: right.left > 0 };
    announce("a tick while the verifier is suspended", suspended);
  }
  if (state.clockLag > 0) {
    const read = draftOf(state);
    read.clockLag = 0;
    announce("the verifier reads its clock", read);
  }
};

/** The right for a ping of this age has ended in any case, so nothing else about it matters. */
const agePing = (lease: number) => (ping: Ping) => {
  const age = Math.min(ping.age + 1, lease);
  return { age, isJumped: ping.isJumped && age < lease, isReceived: ping.isReceived };
};

const jumpPing =
  (lease: number) =>
  ({ age, isReceived }: Ping) => ({ age, isJumped: age < lease, isReceived });

const writerSteps: Steps = (state, { bounds }, announce) => {
  const { database } = state;
  if (database.key < bounds.changes) {
    const keyWaits = [...database.keyWaits, 0];
    announce("the key is changed", { ...state, database: { ...database, key: database.key + 1, keyWaits } });
  }
  if (bounds.revokesCaller && !database.callerRevoked) {
    announce("the verifier's own key is revoked", {
      ...state,
      database: { ...database, callerRevoked: true, callerWait: 0 },
    });
  }
};

const pollSteps: Steps = (state, { design, bounds }, announce) => {
  const { database, replica, stream } = state;
  const { poll, known } = replica;
  if (poll === undefined) {
    const sent = { age: 0, found: undefined, isLeased: false };
    announce("a poll is sent", withReplica(state, withPoll(replica, sent)));
    return;
  }
  announce("the poll fails", withReplica(state, withPoll(replica, undefined)));
  if (poll.found === undefined) {
    const found: Known = { key: database.key, callerRevoked: database.callerRevoked };
    announce("the poll takes its snapshot", withReplica(state, withPoll(replica, { ...poll, found })));
    return;
  }
  const leaseLeft = Math.max(replica.leaseLeft, bounds.lease - poll.age);
  if (!design.invalidationsComeBeforeLease && !poll.isLeased) {
    const leased = { ...replica, leaseLeft, poll: { ...poll, isLeased: true } };
    announce("the poll extends the lease", withReplica(state, leased));
    return;
  }
  const { found } = poll;
  const applied = { known: found, leaseLeft, poll: undefined, read: replica.read };
  const isChanged = found.key !== known.key || found.callerRevoked !== known.callerRevoked;
  const isTold = stream?.isWatched && isChanged;
  const invalidated = isTold ? write(stream, { kind: "invalidate" }, design, bounds) : stream;
  announce("the poll is applied", withReplica(state, applied, invalidated));
  if (stream === undefined) return;
  const all = design.unknownChangesInvalidateAll ? write(stream, { kind: "invalidateAll" }, design, bounds) : stream;
  announce("the poll is applied, without the changes in detail", withReplica(state, applied, all));
};

/** Writes a message, unless too many wait already. */
function write(stream: Stream, message: Message, design: Design, { queue: limit }: Bounds): Stream {
  const { queue, mustInvalidateAll } = stream;
  const written: Message[] =
    mustInvalidateAll && message.kind !== "invalidateAll" ? [{ kind: "invalidateAll" }, message] : [message];
  if (queue.length + written.length > limit)
    return withQueue(stream, queue, mustInvalidateAll || design.overflowInvalidatesAll);
  return withQueue(stream, [...queue, ...written], false);
}

const isWritten = (before: Stream, after: Stream) => after.queue.length > before.queue.length;

const streamSteps: Steps = (state, { design, bounds }, announce) => {
  const { database, replica, stream } = state;
  const { known, leaseLeft, read } = replica;
  if (read === undefined) {
    announce("a key state is read", withReplica(state, withRead(replica, database.key)));
  } else if (design.statesAreFenced && read < known.key) {
    announce("the fence refuses a key state", withReplica(state, withRead(replica, undefined)));
  } else if (stream !== undefined) {
    const sent = write(stream, { kind: "state", key: read }, design, bounds);
    const event = isWritten(stream, sent) ? "a key state is sent" : "a message is dropped";
    announce(event, withReplica(state, withRead(replica, undefined), sent));
  }
  if (stream === undefined) return;
  if (!stream.isWatched)
    announce("changes are written to the stream from now on", withStream(state, { ...stream, isWatched: true }));

  const { unanswered } = stream;
  if (unanswered === undefined || (design.callersAreRechecked && known.callerRevoked)) return;
  const remaining = design.grantsArePartsOfTheLease ? leaseLeft : bounds.lease;
  const granted = leaseLeft > 0 ? remaining : design.grantsNeedLease ? 0 : 1;
  if (granted === 0) return;
  const sent = write(stream, { kind: "grant", ping: unanswered, remaining: granted }, design, bounds);
  if (isWritten(stream, sent)) announce("a grant is sent", withStream(state, withAnswered(sent)));
  else announce("a message is dropped", withStream(state, sent));
};

const verifierSteps: Steps = (state, setting, announce) => {
  const { design, bounds } = setting;
  const { replica, stream, cached, right } = state;
  if (stream === undefined) {
    const opened: Stream = {
      queue: [],
      pings: [],
      unanswered: undefined,
      mustInvalidateAll: false,
      isWatched: design.statesAreWatchedAtOnce,
    };
    if (!replica.known.callerRevoked) announce("a stream is opened", withStream(state, opened));
    announce("a stream to another replica is opened", withReplica(state, otherReplica, opened));
    // It may still have the key state from before any change.
    for (let read = 0; read <= state.database.key; read++)
      announce("a stream to another replica is opened", withReplica(state, withRead(otherReplica, read), opened));
    return;
  }
  const ended = draftOf(state);
  ended.stream = undefined;
  ended.cached = design.streamsEndWithTheirStates ? undefined : cached;
  ended.right = design.streamsEndWithTheirRight ? noRight(setting) : right;
  ended.call = undefined;
  announce("the stream ends", ended);
  const { pings } = stream;
  if (pings.length < bounds.pings) {
    const sent = { age: 0, isJumped: false, isReceived: false };
    announce("a ping is sent", withStream(state, withPings(stream, [...pings, sent])));
  }
  const arriving = pings.findIndex(({ isReceived }) => !isReceived);
  if (arriving >= 0) {
    const received = pings.map((ping, place) => (place === arriving ? { ...ping, isReceived: true } : ping));
    announce("a ping arrives", withStream(state, withPings(stream, received, arriving)));
  }
  const deliverable = design.messagesAreInOrder ? 1 : stream.queue.length;
  for (let place = 0; place < Math.min(deliverable, stream.queue.length); place++) {
    const message = stream.queue[place] as Message;
    const queue = stream.queue.filter((_message, at) => at !== place);
    const { event, next } = receive(withStream(state, withQueue(stream, queue)), message, setting);
    announce(place === 0 ? event : "a message overtakes another", next);
  }
};

function receive(state: State, message: Message, { design }: Setting): { event: Event; next: State } {
  switch (message.kind) {
    case "state":
      return { event: "a key state arrives", next: withCached(state, message.key) };
    case "invalidate":
      return { event: "an invalidation arrives", next: withCached(state, undefined) };
    case "invalidateAll":
      return { event: "an invalidation of everything arrives", next: withCached(state, undefined) };
    default: {
      const stream = state.stream as Stream;
      const { pings } = stream;
      const answered = message.ping === undefined ? undefined : pings[message.ping];
      const place = message.ping;
      if (answered === undefined || place === undefined)
        return { event: "a grant for an unknown ping arrives", next: state };
      const countedFrom = design.grantsNameTheirPing ? answered : (pings.at(-1) ?? answered);
      const left = message.remaining - (design.rightCountsFromPing ? countedFrom.age : 0);
      const isLonger = left > Math.max(0, state.right.left);
      const right: Right = isLonger ? { left, isJumped: countedFrom.isJumped } : state.right;
      const next = draftOf(state);
      next.right = right;
      next.stream = forgetPings(stream, place);
      return { event: "a grant arrives", next };
    }
  }
}

/** Without the pings up to this place. */
function forgetPings(stream: Stream, place: number): Stream {
  const moved = (ping: number | undefined) => (ping === undefined || ping <= place ? undefined : ping - place - 1);
  return {
    ...stream,
    pings: stream.pings.slice(place + 1),
    unanswered: moved(stream.unanswered),
    queue: stream.queue.map((message) =>
      message.kind === "grant" ? { ...message, ping: moved(message.ping) } : message,
    ),
  };
}

const callSteps: Steps = (state, { design, bounds }, announce) => {
  const { right, cached, call, clockLag } = state;
  const isJumped = right.isJumped && design.suspensionEndsTheRight;
  const isGranted = right.left + clockLag > 0 && !isJumped;
  const acknowledged = acknowledgedIn(state.database, design.changesWait ? bounds.lease : 0);

  function decide(key: number | undefined, isAllowed: boolean, required: Known): void {
    const isLocal = key !== undefined && isAllowed;
    const isWrong = isLocal && (key < required.key || required.callerRevoked);
    if (!isLocal) announce("a call asks the service", withCall(state, undefined));
    else announce(key % 2 === 0 ? "accepted locally" : "refused locally", withCall(state, undefined), isWrong);
  }

  if (design.rightIsReadFirst && !bounds.threads) return decide(cached, isGranted, acknowledged);
  if (call !== undefined)
    return decide(design.rightIsReadFirst ? cached : call.key, isGranted || design.rightIsReadFirst, call.acknowledged);
  if (!design.rightIsReadFirst) {
    if (cached !== undefined) announce("a call reads the key state", withCall(state, { acknowledged, key: cached }));
  } else if (isGranted) announce("a call reads the right", withCall(state, { acknowledged, key: undefined }));
};

/** The changes that have been acknowledged. */
function acknowledgedIn({ keyWaits, callerRevoked, callerWait }: Database, wait: number): Known {
  return {
    key: keyWaits.findLastIndex((waited) => waited >= wait) + 1,
    callerRevoked: callerRevoked && callerWait >= wait,
  };
}

const actors = [clockSteps, writerSteps, pollSteps, streamSteps, verifierSteps, callSteps];
