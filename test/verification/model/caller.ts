import { allRows, enabledAt, epochOf, isAccepted, isFalse, truthFrom } from "./database.js";
import { type Design, waitOf } from "./design.js";
import type { Event, Setting, Source, Steps } from "./events.js";
import type { Announce } from "./explore.js";
import { passesFence } from "./fence.js";
import { withRead } from "./revise.js";
import { type Call, type Fact, type Replica, resting, type Stage, type State } from "./state.js";

/** The call that is judged. It may rest anywhere for as long as it likes, and be followed by another. */
export const callSteps: Steps = (state, setting, announce) => {
  const { database, replica, call } = state;
  if (!call) {
    begin(state, setting, announce);
    return;
  }
  if (call === resting) {
    goOn(state, setting, announce);
    return;
  }
  announce("the call is unavailable", { database, replica, call: undefined });
  if (call.stage === "admitted") {
    const { held } = replica;
    if (held && passesFence(held, replica)) {
      answer(state, call, held, "a held fact", setting.design, announce);
    } else {
      const asking: Call = { stage: "asks Redis", truth: call.truth };
      announce("the call finds nothing held that it may use", { database, replica, call: asking });
    }
  } else if (call.stage === "asks Redis") {
    announce("Redis has nothing", missed(state, call));
    askRedis(state, call, setting.design, announce);
  } else if (call.stage !== "awaits read" && !setting.design.redisNeedsLease) {
    askRedis(state, call, setting.design, announce);
  }
};

/**
 * Ends the call with what the fact says. If that is an acceptance, it may also have been of the headers alone, or of a
 * change that is still to be made.
 */
export function answer(
  state: State,
  call: Call,
  fact: Fact,
  source: Source,
  design: Design,
  announce: Announce<State, Event>,
): void {
  const { database, replica } = state;
  const event: Event = isAccepted(fact.enabled) ? `accepted from ${source}` : `refused from ${source}`;
  announce(event, { database, replica, call: undefined }, isFalse(fact.enabled, call.truth));
  if (!isAccepted(fact.enabled)) {
    if (design.endsAreStates) return;
    const ended: State = { database, replica, call: undefined };
    announce("accepted by a clock that is behind", ended, isFalse(allRows, call.truth));
    return;
  }
  announce("accepted so far, the call waits for its body or a connection", { database, replica, call: resting });
}

/** A call that has waited goes on: its body has come, or its statement begins. What is acknowledged by now binds it. */
function goOn(state: State, setting: Setting, announce: Announce<State, Event>): void {
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

/** Whether the replica takes what Redis says for true. */
export function isBelieved(fact: Fact, replica: Replica, design: Design): boolean {
  const { applied = -1 } = replica;
  return fact.asOf <= applied && (passesFence(fact, replica) || !design.redisIsFenced);
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

/** Redis returns whatever was ever true: somebody may have read it, and written it at any later time. */
function askRedis(state: State, call: Call, design: Design, announce: Announce<State, Event>): void {
  const { database, replica } = state;
  for (let asOf = 0; asOf <= epochOf(database); asOf++) {
    const fact = { enabled: enabledAt(database, asOf), asOf };
    if (isBelieved(fact, replica, design)) answer(state, call, fact, "Redis", design, announce);
    else if (call.stage !== "asks Redis") continue;
    else if (passesFence(fact, replica))
      announce("a fact from Redis is later than what is applied", missed(state, call));
    else announce("the fence refuses a fact from Redis", missed(state, call));
  }
}

/** Postgres is left. A read that is under way serves this call too. */
function missed({ database, replica }: State, { truth }: Call): State {
  const reading = replica.read ? replica : withRead(replica, { snapshot: undefined });
  return { database, replica: reading, call: { stage: "awaits read", truth } };
}
