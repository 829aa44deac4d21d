import { type Bounds, type Rule, UNRELATED, WORKSPACE } from "./design.js";
import type { Event } from "./events.js";

/** The protocol without one rule, and the violation that follows. */
interface Mutant {
  readonly rule: Rule;
  /** Ends the sentence "a call is accepted that must be refused ...". */
  readonly when: string;
  /** The bounds that are needed to find the violation, if one change is not enough. */
  readonly bounds?: Bounds;
  /** Events of the trace, in this order. They show that the violation is the one that the rule prevents. */
  readonly through: readonly Event[];
}

/** A change of a workspace that commits after another change, which began later. */
export const lateCommits: Bounds = {
  lease: 2,
  slowClock: false,
  commits: 2,
  losesWriters: false,
  commitsLate: true,
  rows: [WORKSPACE, UNRELATED],
};

export const mutants: readonly Mutant[] = [
  {
    rule: "writesWait",
    when: "if a write returns at its commit",
    through: ["the poll takes its snapshot", "a row is changed", "a call begins under the lease"],
  },
  {
    rule: "retriesWait",
    when: "if a write that finds the row in the requested state returns at once",
    through: ["a row is changed, but its writer dies", "a lost write is retried", "a call begins under the lease"],
  },
  {
    rule: "waitsCoverSlowClocks",
    when: "if a write waits for one lease time by its own clock, and the lease holder's clock is slower",
    through: [
      "the poll takes its snapshot",
      "a row is changed",
      "a tick that the replica's clock misses",
      "a call begins under the lease",
    ],
  },
  {
    rule: "endsAreStates",
    when: "if the end of a key is a time, and the replica's clock is behind",
    through: ["a row is changed", "a call begins under the lease", "accepted by a clock that is behind"],
  },
  {
    rule: "leaseCountsFromSending",
    when: "if the lease counts from the poll's reply",
    through: ["the poll takes its snapshot", "a row is changed", "a tick", "a tick", "the poll is applied"],
  },
  {
    rule: "clockIsReadByTheCall",
    when: "if a call uses an earlier clock reading",
    through: ["the poll takes its snapshot", "a row is changed", "a tick", "a tick", "a call begins under the lease"],
  },
  {
    rule: "pollIsOneSnapshot",
    when: "if the changes are read before the epoch",
    through: ["the poll reads the changes", "a row is changed", "the poll reads the epoch", "the poll is applied"],
  },
  {
    rule: "pollsAskForWhatWasInProgress",
    when: "if a poll asks for higher transaction ids only",
    bounds: lateCommits,
    through: [
      "an unrelated row is changed",
      "a row is changed by a transaction that began before the last commit",
      "the poll is applied",
      "accepted from memory",
    ],
  },
  {
    rule: "changesComeBeforeLease",
    when: "if the lease is extended before the changes are applied",
    through: ["a row is changed", "the poll takes its snapshot", "the poll extends the lease", "accepted from memory"],
  },
  {
    rule: "callsAwaitLaterPoll",
    when: "if a call without a lease uses a poll that was sent before it",
    through: ["the poll takes its snapshot", "a row is changed", "a call begins without a lease"],
  },
  {
    rule: "fillsAreFenced",
    when: "if a late read is cached without the fence",
    through: ["the read takes its snapshot", "a row is changed", "the poll is applied", "accepted from memory"],
  },
  {
    rule: "redisIsFenced",
    when: "if entries from Redis are used without the fence",
    through: ["a row is changed", "the poll is applied", "a call begins under the lease", "accepted from Redis"],
  },
  {
    rule: "redisNeedsLease",
    when: "if Redis is read without a lease",
    through: ["a row is changed", "a call begins without a lease", "accepted from Redis"],
  },
  {
    rule: "sharedReadsAreFenced",
    when: "if a call uses a read that was in flight before it, without the fence",
    through: [
      "the read takes its snapshot",
      "a row is changed",
      "a call begins under the lease",
      "accepted from Postgres",
    ],
  },
  {
    rule: "forgettingRaisesHorizon",
    when: "if old changes are forgotten, and the horizon stays",
    through: ["a row is changed", "the poll is applied", "old changes are forgotten", "a call begins under the lease"],
  },
  {
    rule: "callersAreCheckedAgain",
    when: "if a caller is authenticated by its headers, and not checked again",
    through: [
      "a row is changed",
      "a call begins under the lease",
      "accepted so far, the call waits for its body or a connection",
      "accepted by the headers alone",
    ],
  },
  {
    rule: "changesCarryTheirCaller",
    when: "if the statement of a change does not check its caller",
    through: [
      "a row is changed",
      "a call begins under the lease",
      "accepted so far, the call waits for its body or a connection",
      "accepted by the statement of a change",
    ],
  },
  {
    rule: "overdueCallsAreNotBegun",
    when: "if a call is begun after its deadline",
    through: ["accepted so far, the call waits for its body or a connection", "accepted after the deadline"],
  },
];
