/** The rules of the protocol between a replica and a verifier. Each can be left out, to show why it is needed. */
const rules = {
  /** A change is acknowledged one lease time after its commit. */
  changesWait: true,
  /** The right counts from the sending of the ping, not from the arrival of the grant. */
  rightCountsFromPing: true,
  /** A grant lasts as long as the replica's lease still lasts. */
  grantsArePartsOfTheLease: true,
  /** Without a lease, no grant is sent. */
  grantsNeedLease: true,
  /** Changes are written to the streams before the lease is extended. */
  invalidationsComeBeforeLease: true,
  /** A key state is sent only if it includes every change that the replica knows. */
  statesAreFenced: true,
  /** From the turn on in which a state is sent, its changes are written to the stream. */
  statesAreWatchedAtOnce: true,
  /** The verifier applies messages in the order of the stream. */
  messagesAreInOrder: true,
  /** When a stream ends, its key states are dropped. */
  streamsEndWithTheirStates: true,
  /** When a stream ends, its right is dropped. */
  streamsEndWithTheirRight: true,
  /** When messages are dropped, everything is invalidated before anything else is sent. */
  overflowInvalidatesAll: true,
  /** A right or a ping from before a suspension of the verifier is not used. */
  suspensionEndsTheRight: true,
  /** No grant is sent once the replica knows that the verifier's own key was revoked. */
  callersAreRechecked: true,
  /** When a replica cannot know the changes in detail, everything is invalidated. */
  unknownChangesInvalidateAll: true,
  /** A call reads the clock when it begins. */
  clockIsReadByTheCall: true,
  /** The right is checked before the key state is read. */
  rightIsReadFirst: true,
  /** A grant counts from the ping that it answers. */
  grantsNameTheirPing: true,
};

export type Rule = keyof typeof rules;
export type Design = Readonly<Record<Rule, boolean>>;

export const protocol: Design = rules;

export function without(rule: Rule): Design {
  return { ...protocol, [rule]: false };
}

/** The bounds of the exploration. */
export interface Bounds {
  /** In ticks. */
  readonly lease: number;
  /** How many messages may wait on the stream. */
  readonly queue: number;
  /** How many pings the verifier remembers. */
  readonly pings: number;
  /** How often the key is changed. */
  readonly changes: number;
  /** Whether the verifier's own key may be revoked. */
  readonly revokesCaller: boolean;
  /** Whether the verifier may be suspended while its monotonic clock stands still. */
  readonly suspends: boolean;
  /** Whether a call reads the right and the key state in two steps, as in a language with threads. */
  readonly threads: boolean;
}
