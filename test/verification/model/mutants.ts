import { type Bounds, type Rule, UNRELATED, WORKSPACE } from "./design.js";
import type { Event } from "./events.js";

/** What goes wrong without a rule. */
interface Mutant {
  readonly rule: Rule;
  /** Ends the sentence "a call is accepted that must not be ...". */
  readonly when: string;
  /** How far the exploration has to go to find it, if one change is not enough. */
  readonly bounds?: Bounds;
  /** What happens on the way, in this order, so that the rule is broken by what it is there for. */
  readonly through: readonly Event[];
}

/** A change of a workspace that commits after another, which began later. */
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
    when: "if a write that finds its work done returns at once",
    through: [
      "a row is changed, but its writer is lost",
      "a lost write is tried again",
      "a call begins under the lease",
    ],
  },
  {
    rule: "waitsCoverSlowClocks",
    when: "if a write waits for one lease by its own clock, and the holder's is slower",
    through: [
      "the poll takes its snapshot",
      "a row is changed",
      "a tick that the replica's clock misses",
      "a call begins under the lease",
    ],
  },
  {
    rule: "endsAreStates",
    when: "if an end is a time, and the replica's clock is behind",
    through: ["a row is changed", "a call begins under the lease", "accepted by a clock that is behind"],
  },
  {
    rule: "leaseCountsFromSending",
    when: "if the lease counts from the poll's reply",
    through: ["the poll takes its snapshot", "a row is changed", "a tick", "a tick", "the poll is applied"],
  },
  {
    rule: "clockIsReadByTheCall",
    when: "if a call goes by a remembered time",
    through: ["the poll takes its snapshot", "a row is changed", "a tick", "a tick", "a call begins under the lease"],
  },
  {
    rule: "pollIsOneSnapshot",
    when: "if the changes are read before the epoch",
    through: ["the poll reads the changes", "a row is changed", "the poll reads the epoch", "the poll is applied"],
  },
  {
    rule: "pollsAskForWhatWasInProgress",
    when: "if a poll asks by the numbers of transactions alone",
    bounds: lateCommits,
    through: [
      "something else is changed",
      "a row is changed by a transaction that had begun before the last commit",
      "the poll is applied",
      "accepted from a held fact",
    ],
  },
  {
    rule: "changesComeBeforeLease",
    when: "if the lease is extended before the changes are applied",
    through: [
      "a row is changed",
      "the poll takes its snapshot",
      "the poll extends the lease",
      "accepted from a held fact",
    ],
  },
  {
    rule: "callsAwaitLaterPoll",
    when: "if a call without a lease is served by a poll that was sent before",
    through: ["the poll takes its snapshot", "a row is changed", "a call begins without a lease"],
  },
  {
    rule: "fillsAreFenced",
    when: "if a late read is held without the fence",
    through: ["the read takes its snapshot", "a row is changed", "the poll is applied", "accepted from a held fact"],
  },
  {
    rule: "redisIsFenced",
    when: "if Redis is believed without the fence",
    through: ["a row is changed", "the poll is applied", "a call begins under the lease", "accepted from Redis"],
  },
  {
    rule: "redisNeedsLease",
    when: "if Redis is asked without a lease",
    through: ["a row is changed", "a call begins without a lease", "accepted from Redis"],
  },
  {
    rule: "sharedReadsAreFenced",
    when: "if a call believes a read that was under way before it",
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
    when: "if a caller is checked by its headers alone",
    through: [
      "a row is changed",
      "a call begins under the lease",
      "accepted so far, the call waits for its body or a connection",
      "accepted by the headers alone",
    ],
  },
  {
    rule: "changesCarryTheirCaller",
    when: "if the statement of a change has no condition",
    through: [
      "a row is changed",
      "a call begins under the lease",
      "accepted so far, the call waits for its body or a connection",
      "accepted by the statement of a change",
    ],
  },
  {
    rule: "overdueCallsAreNotBegun",
    when: "if a call is begun whose deadline has passed",
    through: ["accepted so far, the call waits for its body or a connection", "accepted after the deadline"],
  },
];
