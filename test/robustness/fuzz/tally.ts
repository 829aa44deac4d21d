/** Counts of cases and results. */
export interface Tally {
  cases: number;
  accepted: number;
  readonly byOperation: Count;
  readonly acceptedByOperation: Count;
  readonly byProtocol: Count;
  readonly byKind: Count;
  readonly byOutcome: Count;
  /** Accepted changes that were read back unchanged over another protocol. */
  readBack: number;
  /** Accepted requests that returned the same response when retried with their Idempotency-Key. */
  repeated: number;
  /** Retries because the service was unavailable. */
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
