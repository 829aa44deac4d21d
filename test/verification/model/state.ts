import { type Database, emptyDatabase, type Rows, type Truth } from "./database.js";

/** A value that was read in one snapshot: the enabled rows, and an epoch in which they were enabled. */
export interface Versioned {
  readonly enabled: Rows;
  readonly epoch: number;
}

/** A poll in flight. */
export interface Poll {
  /** Ticks since it was sent, up to the lease time: the reply to an older poll brings no lease. */
  readonly age: number;
  /** The epochs of the snapshots in which it read the changes, and the epoch itself. */
  readonly changesAt: number | undefined;
  readonly epochAt: number | undefined;
  /** Its reply has extended the lease, but its changes are not applied yet. */
  readonly leased: boolean;
  /** The replica's slow clock has missed a tick since the poll was sent. */
  readonly missedTick: boolean;
}

export interface Replica {
  /** All changes in epochs above the horizon, up to the applied one, are known. Undefined before the first poll. */
  readonly applied: number | undefined;
  readonly horizon: number;
  /** By row, the epoch of the last known change; 0 if none is known. */
  readonly lastChange: readonly [number, number];
  /** In ticks. At zero the lease has ended. */
  readonly leaseLeft: number;
  /** The clock has missed a tick since the sending of the poll that brought the lease. */
  readonly missedTick: boolean;
  /** Ticks since the clock was read. They matter only to a design that reuses a clock reading. */
  readonly clockLag: number;
  readonly poll: Poll | undefined;
  /** A read of PostgreSQL in flight, shared by all calls that miss the cache. It takes its snapshot in a later step. */
  readonly read: { readonly snapshot: Versioned | undefined } | undefined;
  readonly cached: Versioned | undefined;
}

export type Stage = "awaits sending" | "awaits reply" | "admitted" | "asks Redis" | "awaits read" | "waits";

export interface Call {
  readonly stage: Stage;
  readonly truth: Truth;
}

/**
 * An accepted call that waits for its body or a connection. The states it may return are determined when it continues.
 */
export const waitingCall: Call = { stage: "waits", truth: { enabled: 0, disabled: 0 } };

export interface State {
  readonly database: Database;
  readonly replica: Replica;
  readonly call: Call | undefined;
}

export const initial: State = {
  database: emptyDatabase,
  replica: {
    applied: undefined,
    horizon: 0,
    lastChange: [0, 0],
    leaseLeft: 0,
    missedTick: false,
    clockLag: 0,
    poll: undefined,
    read: undefined,
    cached: undefined,
  },
  call: undefined,
};
