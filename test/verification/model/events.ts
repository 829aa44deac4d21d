import type { Bounds, Design } from "./design.js";
import type { Announce } from "./explore.js";
import type { State } from "./state.js";

/** The level that a call's answer came from. */
export type Source = "memory" | "Redis" | "Postgres";

export type Event =
  | "a tick"
  | "a tick that the replica's clock misses"
  | "a row is changed"
  | "a row is changed by a transaction that began before the last commit"
  | "a row is changed, but its writer dies"
  | "an unrelated row is changed"
  | "a lost write is retried"
  | "a poll is sent"
  | "the poll takes its snapshot"
  | "the poll reads the changes"
  | "the poll reads the epoch"
  | "the poll extends the lease"
  | "the poll is applied"
  | "the poll is applied, and a call that waited for it continues"
  | "the poll fails"
  | "the replica reads its clock"
  | "a call begins under the lease"
  | "a call begins without a lease"
  | "the call finds no current value in memory"
  | "Redis has nothing"
  | "the fence refuses an entry from Redis"
  | "an entry from Redis is newer than the applied epoch"
  | "the fence refuses a late read"
  | "the call is unavailable"
  | `accepted from ${Source}`
  | `refused from ${Source}`
  | "accepted by a clock that is behind"
  | "accepted so far, the call waits for its body or a connection"
  | "the body arrives, and the caller is checked again"
  | "accepted by the headers alone"
  | "accepted by the statement of a change"
  | "refused by the statement of a change"
  | "the deadline passes"
  | "accepted after the deadline"
  | "another call starts a read"
  | "the read takes its snapshot"
  | "a read value is cached"
  | "another call caches an entry from Redis"
  | "the cached value is confirmed as of the applied epoch"
  | "the cached value is evicted"
  | "old changes are forgotten";

/** The steps of one actor. */
export type Steps = (state: State, setting: Setting, announce: Announce<State, Event>) => void;

export interface Setting {
  readonly design: Design;
  readonly bounds: Bounds;
}
