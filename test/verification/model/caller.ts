import { allRows, enabledAt, epochOf, isAccepted, isFalse, truthFrom } from "./database.js";
import { type Design, waitOf } from "./design.js";
import type { Event, Setting, Source, Steps } from "./events.js";
import type { Announce } from "./explore.js";
import { passesFence } from "./fence.js";
import { withRead } from "./revise.js";
import { type Call, type Replica, type Stage, type State, type Versioned, waitingCall } from "./state.js";

/** The call whose result is checked. It may pause anywhere for any time, and another may follow it. */
export const callSteps: Steps = (state, setting, announce) => {
  const { database, replica, call } = state;
  if (!call) {
    begin(state, setting, announce);
    return;
  }
  if (call === waitingCall) {
    resume(state, setting, announce);
    return;
  }
  announce("the call is unavailable", { database, replica, call: undefined });
  if (call.stage === "admitted") {
    const { cached } = replica;
    if (cached && passesFence(cached, replica)) {
      answer(state, call, cached, "memory", setting.design, announce);
    } else {
      const asking: Call = { stage: "asks Redis", truth: call.truth };
      announce("the call finds no current value in memory", { database, replica, call: asking });
    }
  } else if (call.stage === "asks Redis") {
    announce("Redis has nothing", missed(state, call));
    askRedis(state, call, setting.design, announce);
  } else if (call.stage !== "awaits read" && !setting.design.redisNeedsLease) {
    askRedis(state, call, setting.design, announce);
  }
};

/**
 * Ends the call with the result of this value. An acceptance may also be that of the headers alone, or come before a
 * change that is still to be made.
 */
export function answer(
  state: State,
  call: Call,
  versioned: Versioned,
  source: Source,
  design: Design,
  announce: Announce<State, Event>,
): void {
  const { database, replica } = state;
  const event: Event = isAccepted(versioned.enabled) ? `accepted from ${source}` : `refused from ${source}`;
  announce(event, { database, replica, call: undefined }, isFalse(versioned.enabled, call.truth));
  if (!isAccepted(versioned.enabled)) {
    if (design.endsAreStates) return;
    const ended: State = { database, replica, call: undefined };
    announce("accepted by a clock that is behind", ended, isFalse(allRows, call.truth));
    return;
  }
  announce("accepted so far, the call waits for its body or a connection", { database, replica, call: waitingCall });
}

/**
 * A call that has waited continues: its body has arrived, or its statement begins. All changes acknowledged by now bind
 * it.
 */
function resume(state: State, setting: Setting, announce: Announce<State, Event>): void {
  const { database, replica } = state;
  const { design, bounds } = setting;
  const ended: State = { database, replica, call: undefined };
  const isRevoked = isFalse(allRows, truthFrom(database, waitOf(design, bounds)));
  announce("the deadline passes", ended);
  if (!design.overdueCallsAreNotBegun) announce("accepted after the deadline", ended, true);
  if (!design.callersAreCheckedAgain) announce("accepted by the headers alone", ended, isRevoked);
  else begin(state, setting, (_event, next) => announce("the body arrives, and the caller is checked again", next));
  if (design.changesCarryTheirCaller && !isAccepted(enabledAt(database, epochOf(database))))
    announce("refused by the statement of a change", ended);
  else announce("accepted by the statement of a change", ended, isRevoked);
}

/** Whether the replica uses an entry from Redis. */
export function isUsable(versioned: Versioned, replica: Replica, design: Design): boolean {
  const { applied = -1 } = replica;
  return versioned.epoch <= applied && (passesFence(versioned, replica) || !design.redisIsFenced);
}

function begin({ database, replica }: State, { design, bounds }: Setting, announce: Announce<State, Event>): void {
  const truth = truthFrom(database, waitOf(design, bounds));
  if (replica.leaseLeft + replica.clockLag > 0) {
    announce("a call begins under the lease", { database, replica, call: { stage: "admitted", truth } });
    return;
  }
  const stage: Stage = replica.poll && !design.callsAwaitLaterPoll ? "awaits reply" : "awaits sending";
  announce("a call begins without a lease", { database, replica, call: { stage, truth } });
}

/** Redis returns any state that ever existed: a replica may have read it, and written it to Redis at any later time. */
function askRedis(state: State, call: Call, design: Design, announce: Announce<State, Event>): void {
  const { database, replica } = state;
  for (let epoch = 0; epoch <= epochOf(database); epoch++) {
    const versioned = { enabled: enabledAt(database, epoch), epoch };
    if (isUsable(versioned, replica, design)) answer(state, call, versioned, "Redis", design, announce);
    else if (call.stage !== "asks Redis") continue;
    else if (passesFence(versioned, replica))
      announce("an entry from Redis is newer than the applied epoch", missed(state, call));
    else announce("the fence refuses an entry from Redis", missed(state, call));
  }
}

/** The call reads PostgreSQL next. A read in flight serves this call, too. */
function missed({ database, replica }: State, { truth }: Call): State {
  const reading = replica.read ? replica : withRead(replica, { snapshot: undefined });
  return { database, replica: reading, call: { stage: "awaits read", truth } };
}
