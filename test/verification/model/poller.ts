import { type Database, epochOf, stampAt } from "./database.js";
import { type Design, KEY, WORKSPACE } from "./design.js";
import type { Steps } from "./events.js";
import { draftOf, withPoll } from "./revise.js";
import type { Call, Poll, Replica, Stage } from "./state.js";

/** The replica's poll: one at a time, each of any duration. */
export const pollSteps: Steps = ({ database, replica, call }, { design, bounds }, announce) => {
  const { poll } = replica;
  if (!poll) {
    const sent = withPoll(replica, {
      age: 0,
      changesAt: undefined,
      epochAt: undefined,
      leased: false,
      missedTick: false,
    });
    announce("a poll is sent", { database, replica: sent, call: move(call, "awaits sending", "awaits reply") });
    return;
  }
  const epoch = epochOf(database);
  const isAwaited = call?.stage === "awaits reply";
  if (!poll.leased) {
    const failed = withPoll(replica, undefined);
    announce("the poll fails", { database, replica: failed, call: isAwaited ? undefined : call });
  }
  if (poll.changesAt === undefined) {
    const taken: Poll = {
      age: poll.age,
      changesAt: epoch,
      epochAt: design.pollIsOneSnapshot ? epoch : undefined,
      leased: false,
      missedTick: poll.missedTick,
    };
    const event = design.pollIsOneSnapshot ? "the poll takes its snapshot" : "the poll reads the changes";
    announce(event, { database, replica: withPoll(replica, taken), call });
  } else if (poll.epochAt === undefined) {
    const complete: Poll = { ...poll, epochAt: epoch };
    announce("the poll reads the epoch", { database, replica: withPoll(replica, complete), call });
  } else if (!design.changesComeBeforeLease && !poll.leased) {
    const leased = draftOf(replica);
    leased.poll = { ...poll, leased: true };
    leased.leaseLeft = bounds.lease - poll.age;
    leased.missedTick = poll.missedTick;
    announce("the poll extends the lease", { database, replica: leased, call });
  } else {
    const spent = design.leaseCountsFromSending ? poll.age : 0;
    const leaseLeft = poll.leased ? replica.leaseLeft : bounds.lease - spent;
    const event = isAwaited ? "the poll is applied, and a call that waited for it continues" : "the poll is applied";
    for (const known of knowledgeAfter(replica, database, poll.changesAt, design)) {
      const next = draftOf(replica);
      next.applied = poll.epochAt;
      next.horizon = known.horizon;
      next.lastChange = known.lastChange;
      next.leaseLeft = leaseLeft;
      next.missedTick = poll.missedTick && leaseLeft > 0;
      next.poll = undefined;
      announce(event, { database, replica: next, call: move(call, "awaits reply", "admitted") });
    }
  }
};

type Knowledge = Pick<Replica, "horizon" | "lastChange">;

/** The first poll loads any part of the past. Each later one loads the changes since the previous poll. */
function knowledgeAfter(
  { applied, horizon, lastChange }: Replica,
  database: Database,
  changesAt: number,
  design: Design,
): Knowledge[] {
  const lastKnown = (row: typeof WORKSPACE | typeof KEY, epoch: number) => {
    const stamp = stampAt(database, row, changesAt);
    // Its id is lower than the highest one that the previous poll could see.
    const wasInProgress = database.late[stamp - 1] === true && stamp === epoch + 1;
    const isReturned = stamp > epoch && (design.pollsAskForWhatWasInProgress || !wasInProgress);
    return isReturned ? stamp : lastChange[row];
  };
  const changesAbove = (epoch: number): Knowledge["lastChange"] => [lastKnown(WORKSPACE, epoch), lastKnown(KEY, epoch)];
  if (applied !== undefined) return [{ horizon, lastChange: changesAbove(applied) }];
  return Array.from({ length: changesAt + 1 }, (_, from) => ({ horizon: from, lastChange: changesAbove(from) }));
}

function move(call: Call | undefined, from: Stage, to: Stage): Call | undefined {
  return call?.stage === from ? { stage: to, truth: call.truth } : call;
}
