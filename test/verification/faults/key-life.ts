import { prepare, type Request } from "../../support/clients/low-cost/request.js";
import { observationMs, pauseBetweenWrites, retryUntilAcknowledged } from "./life.js";
import type { Population } from "./population.js";
import type { Random } from "./random.js";
import { grantsFor, type KeySettings, type KeySubject, keySubject, type WorkspaceSubject } from "./subjects.js";
import type { Writer } from "./writer.js";

/** Creates keys one after the other, and updates each until it is deleted, rerolled, or an outcome is unknown. */
export async function runKeyLifecycles(
  writer: Writer,
  population: Population,
  keyWorkspace: WorkspaceSubject,
): Promise<void> {
  let successor: KeySubject | undefined;
  while (writer.writing()) {
    const key = successor ?? (await createKey(writer, keyWorkspace));
    if (key === undefined) return;
    const remove = population.add(key);
    successor = await runKeyLifecycle(writer, key);
    if (successor !== undefined) {
      // The old key is still checked for a while, together with its successor.
      void writer.pause(...observationMs).then(remove);
    } else remove();
  }
}

async function createKey(writer: Writer, keyWorkspace: WorkspaceSubject): Promise<KeySubject | undefined> {
  const created = await writer.create(prepare("createKey", keyWorkspace.secret, grantsFor("granted")));
  return created && keySubject(keyWorkspace, `${created["keyId"]}`, `${created["key"]}`);
}

/** Returns the successor of the key if it was rerolled. */
async function runKeyLifecycle(writer: Writer, key: KeySubject): Promise<KeySubject | undefined> {
  const { subject, keyWorkspace, keyId, settings } = key;
  const { random } = writer;
  const current = { ...settings };
  while (writer.writing()) {
    await pauseBetweenWrites(writer);
    const draw = random.between(0, 1);
    if (draw < 0.07) {
      const outcome = await writer.write(
        subject,
        "existence",
        "deleted",
        prepare("deleteKey", keyWorkspace.secret, { keyId }),
      );
      if (outcome.kind === "not applied") continue;
      writer.retire(outcome.kind === "acknowledged" ? "deleted" : "unknown outcome");
      await writer.pause(...observationMs);
      return undefined;
    }
    if (draw < 0.17 && current.expiry === "future") {
      const request = prepare("rerollKey", keyWorkspace.secret, { keyId, expiration: 0 });
      const outcome = await writer.write(subject, "expiry", "past", request);
      if (outcome.kind === "not applied") continue;
      writer.retire(outcome.kind === "acknowledged" ? "rerolled" : "unknown outcome");
      if (outcome.kind === "unknown") return undefined;
      return keySubject(keyWorkspace, `${outcome.fields["keyId"]}`, `${outcome.fields["key"]}`, current);
    }
    const toggle = random.pick([toggleEnabled, toggleEnabled, toggleGrant, toggleExpiry]);
    const change = toggle(key, current, random);
    const attempt = () => writer.write(subject, change.register, change.value, change.request, change.refusal);
    const outcome = await attempt();
    if (outcome.kind === "acknowledged") Object.assign(current, { [change.register]: change.value });
    if (outcome.kind !== "unknown") continue;
    await retryUntilAcknowledged(writer, attempt);
    return undefined;
  }
  return undefined;
}

interface Change {
  readonly register: keyof KeySettings;
  readonly value: string;
  readonly request: Request;
  readonly refusal?: string;
}

function toggleEnabled({ keyWorkspace, keyId }: KeySubject, current: KeySettings): Change {
  const value = current.enabled === "enabled" ? "disabled" : "enabled";
  const request = prepare("updateKey", keyWorkspace.secret, { keyId, enabled: value === "enabled" });
  return { register: "enabled", value, request };
}

function toggleGrant({ keyWorkspace, keyId }: KeySubject, current: KeySettings): Change {
  const value = current.grant === "granted" ? "missing" : "granted";
  return {
    register: "grant",
    value,
    request: prepare("updateKey", keyWorkspace.secret, { keyId, ...grantsFor(value) }),
  };
}

/** Far enough ahead that it is not reached in a round. */
const farFutureMs = 3_600_000;

/**
 * A past expiry has passed at the latest when the change is acknowledged. It may have passed already when the request
 * is sent. Then a replica whose time of day is behind accepts the change, and others refuse it.
 */
function toggleExpiry({ keyWorkspace, keyId }: KeySubject, current: KeySettings, random: Random): Change {
  const value = current.expiry === "future" ? "past" : "future";
  const expires = Math.round(Date.now() + (value === "future" ? farFutureMs : random.between(-600, 150)));
  const protoJson = { keyId, expires: new Date(expires).toISOString() };
  const request = prepare("updateKey", keyWorkspace.secret, { keyId, expires }, protoJson);
  return { register: "expiry", value, request, refusal: "invalid_input" };
}
