import type { Bounds, Rule } from "./design.js";
import type { Event } from "./machine.js";

/** The protocol without one rule, and the violation that follows. */
interface Mutant {
  readonly rule: Rule;
  /** Ends the sentence "a key is accepted that must be refused ...". */
  readonly when: string;
  /** What is needed to find the violation beside one change and one ping. */
  readonly bounds?: Partial<Bounds>;
  /** Events of the trace, in this order. They show that the violation is the one that the rule prevents. */
  readonly through: readonly Event[];
}

export const mutants: readonly Mutant[] = [
  {
    rule: "changesWait",
    when: "if a change is acknowledged at its commit",
    through: ["the poll takes its snapshot", "the key is changed", "a grant arrives"],
  },
  {
    rule: "rightCountsFromPing",
    when: "if the right counts from the arrival of the grant",
    through: ["the poll takes its snapshot", "the key is changed", "a tick", "a grant arrives"],
  },
  {
    rule: "grantsArePartsOfTheLease",
    when: "if a grant lasts for a whole lease time",
    through: ["the poll takes its snapshot", "the key is changed", "a tick", "a grant is sent", "a tick"],
  },
  {
    rule: "grantsNeedLease",
    when: "if a replica without a lease sends a grant",
    through: ["a ping arrives", "a grant is sent", "a grant arrives"],
  },
  {
    rule: "invalidationsComeBeforeLease",
    when: "if the lease is extended before the invalidation is sent",
    through: ["the key is changed", "the poll extends the lease", "a grant is sent", "a grant arrives"],
  },
  {
    rule: "statesAreFenced",
    when: "if a key state is sent that lacks a known change",
    through: ["the key is changed", "the poll is applied", "a key state is sent", "an invalidation arrives"],
  },
  {
    rule: "statesAreWatchedAtOnce",
    when: "if the changes of a state that was sent are written only later",
    through: ["a key state is sent", "the poll is applied", "a grant is sent"],
  },
  {
    rule: "messagesAreInOrder",
    when: "if the verifier applies a grant before an earlier invalidation",
    through: ["the key is changed", "the poll is applied", "a grant is sent", "a message overtakes another"],
  },
  {
    rule: "streamsEndWithTheirStates",
    when: "if key states outlive their stream",
    through: ["a key state arrives", "the stream ends", "a grant is sent", "a grant arrives"],
  },
  {
    rule: "streamsEndWithTheirRight",
    when: "if the right outlives its stream",
    through: ["a grant arrives", "the stream ends", "a key state arrives"],
  },
  {
    rule: "overflowInvalidatesAll",
    when: "if messages are dropped silently",
    through: ["the key is changed", "the poll is applied", "a grant is sent", "a grant arrives"],
  },
  {
    rule: "suspensionEndsTheRight",
    when: "if the verifier does not notice that it was suspended",
    bounds: { suspends: true },
    through: ["a grant is sent", "a tick while the verifier is suspended"],
  },
  {
    rule: "callersAreRechecked",
    when: "if a verifier gets grants after its own key was revoked",
    bounds: { changes: 0, revokesCaller: true },
    through: ["the verifier's own key is revoked", "the poll is applied", "a grant is sent"],
  },
  {
    rule: "unknownChangesInvalidateAll",
    when: "if a replica that cannot know the changes in detail sends nothing",
    through: ["the key is changed", "the poll is applied, without the changes in detail", "a grant is sent"],
  },
  {
    rule: "clockIsReadByTheCall",
    when: "if a call uses an earlier clock reading",
    through: ["a grant arrives", "a tick"],
  },
  {
    rule: "rightIsReadFirst",
    when: "if the right is checked after the key state was read",
    through: ["a call reads the key state", "an invalidation arrives", "a grant arrives"],
  },
  {
    rule: "grantsNameTheirPing",
    when: "if a grant counts from the last ping, whichever ping it answers",
    bounds: { pings: 2 },
    through: ["a grant is sent", "a tick", "a ping is sent", "a grant arrives"],
  },
];
