/** What came of the cases, counted. */
export interface Tally {
  cases: number;
  accepted: number;
  readonly byOperation: Count;
  readonly acceptedByOperation: Count;
  readonly byProtocol: Count;
  readonly byKind: Count;
  readonly byOutcome: Count;
  /** How often something that was accepted was read through another protocol, and was the same. */
  readBack: number;
  /** How often something that was accepted was sent again, with its Idempotency-Key, and answered the same. */
  repeated: number;
  /** How often the service was not ready, and was asked again. */
  triedAgain: number;
}

export type Count = Map<string, number>;

export function createTally(): Tally {
  return {
    cases: 0,
    accepted: 0,
    byOperation: new Map(),
    acceptedByOperation: new Map(),
    byProtocol: new Map(),
    byKind: new Map(),
    byOutcome: new Map(),
    readBack: 0,
    repeated: 0,
    triedAgain: 0,
  };
}

export function add(count: Count, name: string): void {
  count.set(name, (count.get(name) ?? 0) + 1);
}
