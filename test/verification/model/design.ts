/** The rules of the protocol. Each can be left out, to show what it is there for. */
const rules = {
  /** A write returns one lease after its commit. */
  writesWait: true,
  /** So does a write that found the row as it wanted it: the first attempt may be about to return, or lost. */
  retriesWait: true,
  /** It waits longer than the lease by as much as the holder's clock can be slower than its own. */
  waitsCoverSlowClocks: true,
  /** An end that was asked for is a state that is learnt, not a time that each replica compares with its clock. */
  endsAreStates: true,
  /** The lease counts from the moment before the poll was sent, not from its reply. */
  leaseCountsFromSending: true,
  /** A call reads the clock when it begins. */
  clockIsReadByTheCall: true,
  /** Changes and epoch come from one snapshot. */
  pollIsOneSnapshot: true,
  /** A poll asks for the changes of transactions that were in progress at the one before, too, whatever their ids are. */
  pollsAskForWhatWasInProgress: true,
  /** The changes are applied before the lease is extended. */
  changesComeBeforeLease: true,
  /** A call without a lease waits for a poll that is sent after it began. */
  callsAwaitLaterPoll: true,
  /** What is read from Postgres passes the fence before it is held. */
  fillsAreFenced: true,
  /** What Redis says passes the fence. */
  redisIsFenced: true,
  /** Redis is asked only by a call that has had the lease or a poll of its own. */
  redisNeedsLease: true,
  /** A call that joins a read under way puts its result to the fence. */
  sharedReadsAreFenced: true,
  /** Whoever forgets changes knows less of the past. */
  forgettingRaisesHorizon: true,
  /** The caller is checked again when its whole request is there. */
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

/** How far the exploration goes. Time needs no bound: whatever is older than a lease is equally old. */
export interface Bounds {
  /** In ticks. */
  readonly lease: number;
  /** Whether the replica's clock may be slow: it then misses a tick, from the sending of a poll to the end of its lease. */
  readonly slowClock: boolean;
  readonly commits: number;
  /** Whether a writer may die before it returns. */
  readonly losesWriters: boolean;
  /** Whether a transaction may commit after others that began later. */
  readonly commitsLate: boolean;
  /** Which rows are written to. */
  readonly rows: readonly Row[];
}

/** For how many ticks a write waits. */
export function waitOf({ waitsCoverSlowClocks }: Design, { lease, slowClock }: Bounds): number {
  return slowClock && waitsCoverSlowClocks ? lease + 1 : lease;
}

/** A decision depends on a workspace and a key. A change of anything else is only one more commit. */
export type Row = typeof WORKSPACE | typeof KEY | typeof UNRELATED;
export const WORKSPACE = 0;
export const KEY = 1;
export const UNRELATED = 2;
