/** The number of events in all schedules. A schedule without events proves nothing. */
export interface Tally {
  acceptedFromMemory: number;
  acceptedFromRedis: number;
  acceptedFromPostgres: number;
  refused: number;
  /** Keys that were ended, or have expired. */
  expired: number;
  unavailable: number;
  /** A value was not used, because a known change is missing in it. */
  fenced: number;
  /** A call found the lease lost, and had to poll for changes. */
  leaseLost: number;
  acknowledged: number;
  /** A write was retried, because its outcome was unknown. */
  retried: number;
  /** Calls whose body arrived late. */
  acceptedLate: number;
  refusedLate: number;
  overdue: number;
  /** Changes that a key requested and that were committed. */
  changedAsKey: number;
  /** The lease time was changed, through all steps. */
  leaseTimeChanged: number;
}

export function createTally(): Tally {
  return {
    acceptedFromMemory: 0,
    acceptedFromRedis: 0,
    acceptedFromPostgres: 0,
    refused: 0,
    expired: 0,
    unavailable: 0,
    fenced: 0,
    leaseLost: 0,
    acknowledged: 0,
    retried: 0,
    acceptedLate: 0,
    refusedLate: 0,
    overdue: 0,
    changedAsKey: 0,
    leaseTimeChanged: 0,
  };
}
