/** What happened over all schedules. One in which nothing happens proves nothing. */
export interface Tally {
  acceptedFromHoldings: number;
  acceptedFromRedis: number;
  acceptedFromPostgres: number;
  refused: number;
  /** Keys that had ended, or expired. */
  over: number;
  unavailable: number;
  /** A fact was not used, because a known change is missing in it. */
  fenced: number;
  /** A call found the lease lost, and had to ask for changes. */
  leaseLost: number;
  acknowledged: number;
  /** A write was repeated, because nobody knew what had become of it. */
  repeated: number;
  /** Calls whose body came late. */
  acceptedLate: number;
  refusedLate: number;
  overdue: number;
  /** Changes that a key asked for, and that were made. */
  changedAsKey: number;
  /** The lease time was changed, by all of the steps. */
  leaseTimeChanged: number;
}

export function createTally(): Tally {
  return {
    acceptedFromHoldings: 0,
    acceptedFromRedis: 0,
    acceptedFromPostgres: 0,
    refused: 0,
    over: 0,
    unavailable: 0,
    fenced: 0,
    leaseLost: 0,
    acknowledged: 0,
    repeated: 0,
    acceptedLate: 0,
    refusedLate: 0,
    overdue: 0,
    changedAsKey: 0,
    leaseTimeChanged: 0,
  };
}
