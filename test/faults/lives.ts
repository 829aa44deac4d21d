import type { Population } from "./population.js";
import { prepare, type Request } from "./request.js";
import {
  type KeySettings,
  type KeySubject,
  keptPermission,
  keySubject,
  toggled,
  type WorkspaceSubject,
  workspaceSubject,
} from "./subjects.js";
import type { WriteOutcome, Writer } from "./writer.js";

/** Long enough for every replica to be called several times about what has just been settled. */
const watchMs = [300, 700] as const;

/** A new workspace, with its first key. */
export async function createWorkspace(writer: Writer, operatorKey: string): Promise<WorkspaceSubject | undefined> {
  const made = await writer.create(prepare("createWorkspace", operatorKey, { name: "laboratory" }));
  return made && workspaceSubject(`${made["workspaceId"]}`, `${made["key"]}`);
}

/** Workspaces, one after the other, each disabled and enabled until it cannot be judged any more. */
export async function liveAsWorkspaces(writer: Writer, population: Population, operatorKey: string): Promise<void> {
  while (writer.writing()) {
    const workspace = await createWorkspace(writer, operatorKey);
    if (workspace === undefined) return;
    const { workspaceId, subject } = workspace;
    const leave = population.admit(workspace);
    const reason = "UNPAID_BILLING";
    const protoJson = { workspaceId, reason: `DISABLED_REASON_${reason}` };
    const requests = {
      disabled: prepare("disableWorkspace", operatorKey, { workspaceId, reason }, protoJson),
      enabled: prepare("enableWorkspace", operatorKey, { workspaceId }),
    };
    for (let state: keyof typeof requests = "enabled", settled = true; settled && writer.writing(); ) {
      await pauseBetweenWrites(writer);
      const next: keyof typeof requests = state === "enabled" ? "disabled" : "enabled";
      const request = requests[next];
      const outcome = await writer.write(subject, "workspace", next, request);
      if (outcome.kind === "acknowledged") state = next;
      settled = outcome.kind !== "unknown";
      if (!settled) await insist(writer, () => writer.write(subject, "workspace", next, request));
    }
    leave();
  }
}

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
  const made = await writer.create(prepare("createKey", home.secret, { permissions: [keptPermission, toggled] }));
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
    if (dice < 0.17) {
      const outcome = await writer.write(subject, "term", "ended", prepare("rerollKey", home.secret, { keyId }));
      if (outcome.kind === "not applied") continue;
      writer.retire(outcome.kind === "acknowledged" ? "rerolled" : "unknown outcome");
      if (outcome.kind === "unknown") return undefined;
      return keySubject(home, `${outcome.fields["keyId"]}`, `${outcome.fields["key"]}`, present);
    }
    const change = dice < 0.6 ? toggleEnabled(key, present) : toggleGrant(key, present);
    const attempt = () => writer.write(subject, change.register, change.value, change.request);
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
}

function toggleEnabled({ home, keyId }: KeySubject, present: KeySettings): Change {
  const value = present.enabled === "enabled" ? "disabled" : "enabled";
  const request = prepare("updateKey", home.secret, { keyId, enabled: value === "enabled" });
  return { register: "enabled", value, request };
}

function toggleGrant({ home, keyId }: KeySubject, present: KeySettings): Change {
  const value = present.grant === "granted" ? "lacking" : "granted";
  const permissions = value === "granted" ? [keptPermission, toggled] : [keptPermission];
  return { register: "grant", value, request: prepare("updateKey", home.secret, { keyId, permissions }) };
}

/** Mostly time for others to look, at times none. */
async function pauseBetweenWrites(writer: Writer): Promise<void> {
  if (writer.random.chance(0.8)) await writer.pause(80, 700);
}

/**
 * After an unknown outcome the same is written again until it is acknowledged: from then on the register holds this
 * value, whether the first attempt takes effect late or never. It is watched, and then given up: the next other value
 * could be overwritten by that late attempt.
 */
async function insist(writer: Writer, attempt: () => Promise<WriteOutcome>): Promise<void> {
  for (let attemptsLeft = 8; attemptsLeft > 0 && writer.writing(); attemptsLeft--) {
    await writer.pause(50, 250);
    if ((await attempt()).kind !== "acknowledged") continue;
    await writer.pause(...watchMs);
    break;
  }
  writer.retire("unknown outcome");
}
