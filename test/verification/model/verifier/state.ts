/** What PostgreSQL contains, or a part of it that someone knows. */
export interface Known {
  /** The number of changes of the key. */
  readonly key: number;
  readonly callerRevoked: boolean;
}

export interface Database extends Known {
  /** For each change of the key, the ticks since its commit, up to the lease time. Then it is acknowledged. */
  readonly keyWaits: readonly number[];
  readonly callerWait: number;
}

export interface Poll {
  /** Ticks since it was sent, up to the lease time. */
  readonly age: number;
  /** Undefined before it has taken its snapshot. */
  readonly found: Known | undefined;
  /** It has extended the lease, and its changes are not applied yet: only in a design without that order. */
  readonly isLeased: boolean;
}

export interface Replica {
  readonly known: Known;
  readonly leaseLeft: number;
  readonly poll: Poll | undefined;
  /** The number of changes in a key state that was read from PostgreSQL, and is not sent yet. */
  readonly read: number | undefined;
}

export type Message =
  /** The number of changes that the key state includes. */
  | { readonly kind: "state"; readonly key: number }
  | { readonly kind: "invalidate" }
  | { readonly kind: "invalidateAll" }
  /** The answered ping by its place among those that the verifier remembers. Undefined if it does not. */
  | { readonly kind: "grant"; readonly ping: number | undefined; readonly remaining: number };

/** A ping that the verifier remembers. */
export interface Ping {
  /** Ticks since it was sent by the verifier's clock, up to the lease time. */
  readonly age: number;
  /** The verifier was suspended since. */
  readonly isJumped: boolean;
  readonly isReceived: boolean;
}

export interface Stream {
  /** Messages to the verifier. */
  readonly queue: readonly Message[];
  /** The oldest first. */
  readonly pings: readonly Ping[];
  /** The highest received ping without a grant, by its place. */
  readonly unanswered: number | undefined;
  readonly mustInvalidateAll: boolean;
  /** Changes are written to the stream. */
  readonly isWatched: boolean;
}

/** The right of the verifier, by its clock. */
export interface Right {
  readonly left: number;
  /** The verifier was suspended since the ping. */
  readonly isJumped: boolean;
}

/** A call that has read one of the two, right and key state, with the changes that were acknowledged before it began. */
export interface Call {
  readonly acknowledged: Known;
  /** In a design that reads the key state first. */
  readonly key: number | undefined;
}

export interface State {
  readonly database: Database;
  readonly replica: Replica;
  /** Undefined while the verifier has none. */
  readonly stream: Stream | undefined;
  /** The cached key state. */
  readonly cached: number | undefined;
  readonly right: Right;
  /** Ticks since the verifier read its clock. They matter only to a design that reuses a reading. */
  readonly clockLag: number;
  readonly call: Call | undefined;
}

const nothing: Known = { key: 0, callerRevoked: false };

/** A process that knows of no change and has no lease, as after its start. */
export const otherReplica: Replica = { known: nothing, leaseLeft: 0, poll: undefined, read: undefined };

export const initial: State = {
  database: { ...nothing, keyWaits: [], callerWait: 0 },
  replica: otherReplica,
  stream: undefined,
  cached: undefined,
  right: { left: 0, isJumped: false },
  clockLag: 0,
  call: undefined,
};
