/** The rules of the protocol. Each can be left out, to show why it is needed. */
const rules = {
  /** A write returns one lease time after its commit. */
  writesWait: true,
  /**
   * So does a write that found the row in the requested state: the first attempt may not have returned yet, or be lost.
   */
  retriesWait: true,
  /** It waits longer than the lease, by as much as the lease holder's clock can be slower than its own. */
  waitsCoverSlowClocks: true,
  /** A requested end of a key is a state that polls return, not a time that each replica compares with its clock. */
  endsAreStates: true,
  /** The lease counts from the moment before the poll was sent, not from its reply. */
  leaseCountsFromSending: true,
  /** A call reads the clock when it begins. */
  clockIsReadByTheCall: true,
  /** Changes and epoch come from one snapshot. */
  pollIsOneSnapshot: true,
  /**
   * A poll also asks for the changes of transactions that were in progress at the previous poll, whatever their ids
   * are.
   */
  pollsAskForWhatWasInProgress: true,
  /** The changes are applied before the lease is extended. */
  changesComeBeforeLease: true,
  /** A call without a lease waits for a poll that is sent after it began. */
  callsAwaitLaterPoll: true,
  /** A value read from PostgreSQL must pass the fence before it is cached. */
  fillsAreFenced: true,
  /** An entry from Redis must pass the fence. */
  redisIsFenced: true,
  /** A call reads Redis only after it has had the lease or a poll of its own. */
  redisNeedsLease: true,
  /** A call that joins a read in flight checks its result against the fence. */
  sharedReadsAreFenced: true,
  /** When a replica forgets changes, it raises its horizon: it no longer knows the changes before it. */
  forgettingRaisesHorizon: true,
  /** The caller is checked again when its whole request has arrived. */
  callersAreCheckedAgain: true,
  /** The statement of a change has its caller as a condition. */
  changesCarryTheirCaller: true,
  /** A call whose deadline has passed is not begun. */
  overdueCallsAreNotBegun: true,
};

export type Rule = keyof typeof rules;
export type Design = Readonly<Record<Rule, boolean>>;

export const protocol: Design = rules;

export function without(rule: Rule): Design {
  return { ...protocol, [rule]: false };
}

/** The bounds of the exploration. Time needs no bound: everything older than a lease is equally old. */
export interface Bounds {
  /** In ticks. */
  readonly lease: number;
  /**
   * Whether the replica's clock may be slow. It then misses one tick between the sending of a poll and the end of its
   * lease.
   */
  readonly slowClock: boolean;
  readonly commits: number;
  /** Whether a writer may die before it returns. */
  readonly losesWriters: boolean;
  /** Whether a transaction may commit after others that began later. */
  readonly commitsLate: boolean;
  /** The rows that are written. */
  readonly rows: readonly Row[];
}

/** The number of ticks that a write waits. */
export function waitOf({ waitsCoverSlowClocks }: Design, { lease, slowClock }: Bounds): number {
  return slowClock && waitsCoverSlowClocks ? lease + 1 : lease;
}

/** A decision depends on a workspace and a key. A change of anything else is only one more commit. */
export type Row = typeof WORKSPACE | typeof KEY | typeof UNRELATED;
export const WORKSPACE = 0;
export const KEY = 1;
export const UNRELATED = 2;
