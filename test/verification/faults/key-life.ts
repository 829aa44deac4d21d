import { insist, pauseBetweenWrites, watchMs } from "./life.js";
import type { Population } from "./population.js";
import type { Random } from "./random.js";
import { prepare, type Request } from "./request.js";
import { type KeySettings, type KeySubject, keySubject, namesOf, type WorkspaceSubject } from "./subjects.js";
import type { Writer } from "./writer.js";

/** Keys, one after the other, each updated until it is deleted, rerolled, or cannot be judged any more. */
export async function liveAsKeys(writer: Writer, population: Population, home: WorkspaceSubject): Promise<void> {
  let heir: KeySubject | undefined;
  while (writer.writing()) {
    const key = heir ?? (await createKey(writer, home));
    if (key === undefined) return;
    const leave = population.admit(key);
    heir = await liveAsKey(writer, key);
    if (heir !== undefined) {
      // The old key is watched beside its successor for a while.
      void writer.pause(...watchMs).then(leave);
    } else leave();
  }
}

async function createKey(writer: Writer, home: WorkspaceSubject): Promise<KeySubject | undefined> {
  const made = await writer.create(prepare("createKey", home.secret, namesOf("granted")));
  return made && keySubject(home, `${made["keyId"]}`, `${made["key"]}`);
}

/** Returns the key that has taken its place, if it was rerolled. */
async function liveAsKey(writer: Writer, key: KeySubject): Promise<KeySubject | undefined> {
  const { subject, home, keyId, settings } = key;
  const { random } = writer;
  const present = { ...settings };
  while (writer.writing()) {
    await pauseBetweenWrites(writer);
    const dice = random.between(0, 1);
    if (dice < 0.07) {
      const outcome = await writer.write(subject, "life", "deleted", prepare("deleteKey", home.secret, { keyId }));
      if (outcome.kind === "not applied") continue;
      writer.retire(outcome.kind === "acknowledged" ? "deleted" : "unknown outcome");
      await writer.pause(...watchMs);
      return undefined;
    }
    if (dice < 0.17 && present.term === "running") {
      const request = prepare("rerollKey", home.secret, { keyId, expiration: 0 });
      const outcome = await writer.write(subject, "term", "ended", request);
      if (outcome.kind === "not applied") continue;
      writer.retire(outcome.kind === "acknowledged" ? "rerolled" : "unknown outcome");
      if (outcome.kind === "unknown") return undefined;
      return keySubject(home, `${outcome.fields["keyId"]}`, `${outcome.fields["key"]}`, present);
    }
    const toggle = random.pick([toggleEnabled, toggleEnabled, toggleGrant, toggleTerm]);
    const change = toggle(key, present, random);
    const attempt = () => writer.write(subject, change.register, change.value, change.request, change.refusal);
    const outcome = await attempt();
    if (outcome.kind === "acknowledged") Object.assign(present, { [change.register]: change.value });
    if (outcome.kind !== "unknown") continue;
    await insist(writer, attempt);
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

function toggleEnabled({ home, keyId }: KeySubject, present: KeySettings): Change {
  const value = present.enabled === "enabled" ? "disabled" : "enabled";
  const request = prepare("updateKey", home.secret, { keyId, enabled: value === "enabled" });
  return { register: "enabled", value, request };
}

function toggleGrant({ home, keyId }: KeySubject, present: KeySettings): Change {
  const value = present.grant === "granted" ? "lacking" : "granted";
  return { register: "grant", value, request: prepare("updateKey", home.secret, { keyId, ...namesOf(value) }) };
}

/** Far enough ahead that it does not come. */
const farMs = 3_600_000;

/**
 * When the change is acknowledged, the expiry has passed. It may have when the change is asked for: a replica accepts it
 * whose own time of day is behind, and others refuse it.
 */
function toggleTerm({ home, keyId }: KeySubject, present: KeySettings, random: Random): Change {
  const value = present.term === "running" ? "ended" : "running";
  const expires = Math.round(Date.now() + (value === "running" ? farMs : random.between(-600, 150)));
  const protoJson = { keyId, expires: new Date(expires).toISOString() };
  const request = prepare("updateKey", home.secret, { keyId, expires }, protoJson);
  return { register: "term", value, request, refusal: "invalid_input" };
}
