import type { Poll, Stage, State, Versioned } from "./state.js";

/**
 * A number for each state, with one digit for each part of it. Numbers are hashed and compared many times faster than
 * objects or texts, and a million of them fit into memory.
 */
export function keyOf({ database, replica, call }: State): number {
  let key = 0;
  for (let index = 0; index < MAX_EPOCHS - 1; index++) {
    key = append(key, (database.changed[index] ?? -1) + 1, 4);
    key = append(key, (database.waited[index] ?? 0) + 1, MAX_WAIT + 2);
    if (index > 0) key = append(key, database.late[index] ? 1 : 0, 2);
  }
  key = append(key, epochDigit(replica.applied), MAX_EPOCHS + 1);
  key = append(key, replica.horizon, MAX_EPOCHS);
  key = append(key, replica.lastChange[0], MAX_EPOCHS);
  key = append(key, replica.lastChange[1], MAX_EPOCHS);
  key = append(key, replica.leaseLeft + MAX_LEASE, 2 * MAX_LEASE + 1);
  key = append(key, replica.missedTick ? 1 : 0, 2);
  key = append(key, replica.clockLag, MAX_LEASE + 1);
  key = appendPoll(key, replica.poll);
  key = append(key, replica.read ? 1 : 0, 2);
  key = append(key, versionedDigit(replica.read?.snapshot), VERSIONED_VALUES);
  key = append(key, versionedDigit(replica.cached), VERSIONED_VALUES);
  key = append(key, call ? stageDigit[call.stage] : 0, 7);
  key = append(key, call ? call.truth.enabled : 0, 4);
  return append(key, call ? call.truth.disabled : 0, 4);
}

const MAX_EPOCHS = 4;
const MAX_LEASE = 2;
const MAX_WAIT = 3;
const VERSIONED_VALUES = 4 * MAX_EPOCHS + 1;

const stageDigit: Record<Stage, number> = {
  "awaits sending": 1,
  "awaits reply": 2,
  admitted: 3,
  "asks Redis": 4,
  "awaits read": 5,
  waits: 6,
};

function appendPoll(before: number, poll: Poll | undefined): number {
  let key = append(before, poll ? poll.age + 1 : 0, MAX_LEASE + 2);
  key = append(key, epochDigit(poll?.changesAt), MAX_EPOCHS + 1);
  key = append(key, epochDigit(poll?.epochAt), MAX_EPOCHS + 1);
  key = append(key, poll?.leased ? 1 : 0, 2);
  return append(key, poll?.missedTick ? 1 : 0, 2);
}

function epochDigit(epoch: number | undefined): number {
  return epoch === undefined ? 0 : epoch + 1;
}

function versionedDigit(versioned: Versioned | undefined): number {
  return versioned ? versioned.enabled * MAX_EPOCHS + versioned.epoch + 1 : 0;
}

/** Two states with the same key would hide one of them, and all its successors, from the exploration. */
function append(key: number, digit: number, radix: number): number {
  const longer = key * radix + digit;
  if (digit < 0 || digit >= radix || longer > Number.MAX_SAFE_INTEGER)
    throw new Error("the digit or the key is out of range");
  return longer;
}
