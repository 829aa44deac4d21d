import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Answer } from "./answer.js";
import type { Population } from "./population.js";
import type { Random } from "./random.js";
import { prepare, type Request } from "./request.js";
import { type KeySubject, keySubject, namesOf, type WorkspaceSubject } from "./subjects.js";
import { add, type Tally } from "./tally.js";
import type { Entrance } from "./traffic.js";
import type { WriteOutcome } from "./writer.js";

/** Calls through a protocol and on a replica chosen anew each time. */
export type Ask = (request: Request) => Promise<Answer>;

export function createAsk(entrances: readonly Entrance[], random: Random): Ask {
  return (request) => {
    const protocol = random.pick(random.pick(entrances).protocols);
    return new Promise((resolve) => protocol.call(request, resolve));
  };
}

/** Between two attempts of a client that was not answered. */
const againMs = 50;

/** How long a key is there, at most: so some are deleted at any moment, and some are not. */
const longestLifeMs = 800;

/**
 * Makes keys and deletes them, one after the other, as a client does that insists: a creation is repeated with its
 * idempotency key, and a deletion until it is acknowledged. That a key is not found acknowledges its deletion, too.
 */
export async function makeAndDeleteKeys(
  ask: Ask,
  population: Population,
  home: WorkspaceSubject,
  tally: Tally,
  random: Random,
  isOver: () => boolean,
): Promise<void> {
  while (!isOver()) {
    const key = await createKey(ask, home, tally, isOver);
    if (key === undefined) return;
    const leave = population.admit(key);
    await sleep(random.between(0, longestLifeMs));
    await deleteKey(ask, key, tally, isOver);
    leave();
  }
}

async function createKey(
  ask: Ask,
  home: WorkspaceSubject,
  tally: Tally,
  isOver: () => boolean,
): Promise<KeySubject | undefined> {
  const settings = namesOf("granted");
  const request = prepare("createKey", home.secret, settings, settings, randomUUID());
  while (!isOver()) {
    const answer = await ask(request);
    const outcome = readOutcome(answer, request, tally);
    if (answer.kind === "success") return keySubject(home, `${answer.fields["keyId"]}`, `${answer.fields["key"]}`);
    if (outcome === "not applied") return undefined;
    await sleep(againMs);
  }
  return undefined;
}

async function deleteKey(ask: Ask, key: KeySubject, tally: Tally, isOver: () => boolean): Promise<void> {
  const request = prepare("deleteKey", key.home.secret, { keyId: key.keyId });
  let outcome: WriteOutcome["kind"] = "unknown";
  while (outcome === "unknown" && !isOver()) {
    const underWay = key.subject.registers["life"]?.write("deleted", performance.now());
    const answer = await ask(request);
    outcome = readOutcome(answer, request, tally, "key_not_found");
    if (outcome === "acknowledged") underWay?.acknowledged(performance.now());
    else if (outcome === "unknown") underWay?.unknown(performance.now());
    else underWay?.notApplied();
    if (outcome === "unknown") await sleep(againMs);
  }
}

/** @param done a refusal by which the change is acknowledged */
function readOutcome(answer: Answer, { operation }: Request, tally: Tally, done?: string): WriteOutcome["kind"] {
  const isDone = answer.kind === "success" || (answer.kind === "refused" && answer.code === done);
  const outcome = isDone ? "acknowledged" : answer.kind === "refused" ? "not applied" : "unknown";
  if (isDone) tally.writesAcknowledged++;
  else if (answer.kind === "refused") add(tally.unexpected, `${operation}: ${answer.code}`);
  add(tally.writes, `${operation}, ${outcome}`);
  return outcome;
}
