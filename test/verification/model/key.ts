import type { Fact, Poll, Stage, State } from "./state.js";

/**
 * A number for each state, one digit for each part that tells two states apart: numbers are hashed and compared many
 * times faster than objects or texts, and a million of them fit.
 */
export function keyOf({ database, replica, call }: State): number {
  let key = 0;
  for (let index = 0; index < MOST_EPOCHS - 1; index++) {
    key = append(key, (database.changed[index] ?? -1) + 1, 4);
    key = append(key, (database.waited[index] ?? 0) + 1, LONGEST_WAIT + 2);
    if (index > 0) key = append(key, database.late[index] ? 1 : 0, 2);
  }
  key = append(key, epochDigit(replica.applied), MOST_EPOCHS + 1);
  key = append(key, replica.horizon, MOST_EPOCHS);
  key = append(key, replica.lastChange[0], MOST_EPOCHS);
  key = append(key, replica.lastChange[1], MOST_EPOCHS);
  key = append(key, replica.leaseLeft + LONGEST_LEASE, 2 * LONGEST_LEASE + 1);
  key = append(key, replica.missedTick ? 1 : 0, 2);
  key = append(key, replica.clockLag, LONGEST_LEASE + 1);
  key = appendPoll(key, replica.poll);
  key = append(key, replica.read ? 1 : 0, 2);
  key = append(key, factDigit(replica.read?.snapshot), FACTS);
  key = append(key, factDigit(replica.held), FACTS);
  key = append(key, call ? stageDigit[call.stage] : 0, 7);
  key = append(key, call ? call.truth.enabled : 0, 4);
  return append(key, call ? call.truth.disabled : 0, 4);
}

const MOST_EPOCHS = 4;
const LONGEST_LEASE = 2;
const LONGEST_WAIT = 3;
const FACTS = 4 * MOST_EPOCHS + 1;

const stageDigit: Record<Stage, number> = {
  "awaits sending": 1,
  "awaits reply": 2,
  admitted: 3,
  "asks Redis": 4,
  "awaits read": 5,
  rests: 6,
};

function appendPoll(before: number, poll: Poll | undefined): number {
  let key = append(before, poll ? poll.age + 1 : 0, LONGEST_LEASE + 2);
  key = append(key, epochDigit(poll?.changesAt), MOST_EPOCHS + 1);
  key = append(key, epochDigit(poll?.epochAt), MOST_EPOCHS + 1);
  key = append(key, poll?.leased ? 1 : 0, 2);
  return append(key, poll?.missedTick ? 1 : 0, 2);
}

function epochDigit(epoch: number | undefined): number {
  return epoch === undefined ? 0 : epoch + 1;
}

function factDigit(fact: Fact | undefined): number {
  return fact ? fact.enabled * MOST_EPOCHS + fact.asOf + 1 : 0;
}

/** Two states with one key would hide one of them from the exploration, and whatever follows from it. */
function append(key: number, digit: number, radix: number): number {
  const longer = key * radix + digit;
  if (digit < 0 || digit >= radix || longer > Number.MAX_SAFE_INTEGER) throw new Error("the key has no room for this");
  return longer;
}
