import { type Database, emptyDatabase, type Rows, type Truth } from "./database.js";

/** What was read in one snapshot: the enabled rows, and an epoch in which that was so. */
export interface Fact {
  readonly enabled: Rows;
  readonly asOf: number;
}

/** A poll under way. */
export interface Poll {
  /** Ticks since it was sent, up to the lease: a reply to an older one brings no lease. */
  readonly age: number;
  /** The epochs of the snapshots in which it has read the changes and the epoch itself. */
  readonly changesAt: number | undefined;
  readonly epochAt: number | undefined;
  /** Its reply has extended the lease, but its changes are not applied yet. */
  readonly leased: boolean;
  /** The replica's clock, which is slow, has missed a tick since it was sent. */
  readonly missedTick: boolean;
}

export interface Replica {
  /** All changes in epochs above the horizon, up to the applied one, are known. Undefined before the first poll. */
  readonly applied: number | undefined;
  readonly horizon: number;
  /** By row, the epoch of the last change known; 0 if none is. */
  readonly lastChange: readonly [number, number];
  /** In ticks; at zero it has lapsed. */
  readonly leaseLeft: number;
  /** The clock has missed a tick since the poll was sent that brought the lease. */
  readonly missedTick: boolean;
  /** Ticks since the clock was read, which matter only to a design that remembers the time. */
  readonly clockLag: number;
  readonly poll: Poll | undefined;
  /** A read of Postgres under way, shared by all calls that miss. Its snapshot is not taken at first. */
  readonly read: { readonly snapshot: Fact | undefined } | undefined;
  readonly held: Fact | undefined;
}

export type Stage = "awaits sending" | "awaits reply" | "admitted" | "asks Redis" | "awaits read" | "rests";

export interface Call {
  readonly stage: Stage;
  readonly truth: Truth;
}

/** A call that was accepted, and rests: what it may be told is settled when it goes on. */
export const resting: Call = { stage: "rests", truth: { enabled: 0, disabled: 0 } };

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
    held: undefined,
  },
  call: undefined,
};
