import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { CallResult } from "../../support/clients/low-cost/client.js";
import { prepare, type Request } from "../../support/clients/low-cost/request.js";
import type { Population } from "./population.js";
import type { Random } from "./random.js";
import { grantsFor, type KeySubject, keySubject, type WorkspaceSubject } from "./subjects.js";
import { add, type Tally } from "./tally.js";
import type { ReplicaClients } from "./traffic.js";
import type { WriteOutcome } from "./writer.js";

/** Sends each request over a random protocol to a random replica. */
export type Sender = (request: Request) => Promise<CallResult>;

export function createSender(replicaClients: readonly ReplicaClients[], random: Random): Sender {
  return (request) => {
    const client = random.pick(random.pick(replicaClients).clients);
    return new Promise((resolve) => client.call(request, resolve));
  };
}

/** The pause before a retry. */
const retryDelayMs = 50;

/** Short enough that at any moment, some keys exist and others are already deleted. */
const maxLifetimeMs = 800;

/**
 * Creates and deletes keys, one after the other, with retries. A creation is retried with its idempotency key, and a
 * deletion until it is acknowledged. "Key not found" acknowledges a deletion, too.
 */
export async function createAndDeleteKeys(
  send: Sender,
  population: Population,
  keyWorkspace: WorkspaceSubject,
  tally: Tally,
  random: Random,
  isOver: () => boolean,
): Promise<void> {
  while (!isOver()) {
    const key = await createKey(send, keyWorkspace, tally, isOver);
    if (key === undefined) return;
    const remove = population.add(key);
    await sleep(random.between(0, maxLifetimeMs));
    await deleteKey(send, key, tally, isOver);
    remove();
  }
}

async function createKey(
  send: Sender,
  keyWorkspace: WorkspaceSubject,
  tally: Tally,
  isOver: () => boolean,
): Promise<KeySubject | undefined> {
  const settings = grantsFor("granted");
  const request = prepare("createKey", keyWorkspace.secret, settings, settings, randomUUID());
  while (!isOver()) {
    const result = await send(request);
    const outcome = readOutcome(result, request, tally);
    if (result.kind === "success")
      return keySubject(keyWorkspace, `${result.fields["keyId"]}`, `${result.fields["key"]}`);
    if (outcome === "not applied") return undefined;
    await sleep(retryDelayMs);
  }
  return undefined;
}

async function deleteKey(send: Sender, key: KeySubject, tally: Tally, isOver: () => boolean): Promise<void> {
  const request = prepare("deleteKey", key.keyWorkspace.secret, { keyId: key.keyId });
  let outcome: WriteOutcome["kind"] = "unknown";
  while (outcome === "unknown" && !isOver()) {
    const pending = key.subject.registers["existence"]?.write("deleted", performance.now());
    const result = await send(request);
    outcome = readOutcome(result, request, tally, "key_not_found");
    if (outcome === "acknowledged") pending?.acknowledged(performance.now());
    else if (outcome === "unknown") pending?.unknown(performance.now());
    else pending?.notApplied();
    if (outcome === "unknown") await sleep(retryDelayMs);
  }
}

/** @param done an error code that acknowledges the change */
function readOutcome(result: CallResult, { operation }: Request, tally: Tally, done?: string): WriteOutcome["kind"] {
  const isDone = result.kind === "success" || (result.kind === "refused" && result.code === done);
  const outcome = isDone ? "acknowledged" : result.kind === "refused" ? "not applied" : "unknown";
  if (isDone) tally.writesAcknowledged++;
  else if (result.kind === "refused") add(tally.unexpected, `${operation}: ${result.code}`);
  add(tally.writes, `${operation}, ${outcome}`);
  return outcome;
}
