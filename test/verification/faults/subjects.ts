import { createSubject, type Observation, type Subject } from "./checker.js";

/** A workspace whose first key makes calls while the operator disables and enables it. */
export interface WorkspaceSubject {
  readonly kind: "workspace";
  readonly workspaceId: string;
  readonly keyId: string;
  readonly secret: string;
  readonly subject: Subject;
}

/** A key that makes calls and is verified, while another key of its workspace, which never changes, changes it. */
export interface KeySubject {
  readonly kind: "key";
  readonly keyId: string;
  readonly secret: string;
  readonly home: WorkspaceSubject;
  readonly settings: KeySettings;
  readonly subject: Subject;
}

/** What a key begins with. */
export interface KeySettings {
  readonly enabled: string;
  readonly grant: string;
  /** Whether its expiry, or its reroll, has ended it. */
  readonly term: string;
}

/**
 * What a key is made with, as scopes and as permissions: the toggled one is taken away and given back. Scopes and permissions
 * are changed by one update, so one register tells of both.
 */
export const toggled = "keys.verify";
const kept = ["keys.read", "keys.create"];

/** The settings of a key that holds the toggled name, or lacks it. */
export function namesOf(grant: string): { scopes: string[]; permissions: string[] } {
  const names = grant === "granted" ? [...kept, toggled] : kept;
  return { scopes: names, permissions: names };
}

export function workspaceSubject(workspaceId: string, keyId: string, secret: string): WorkspaceSubject {
  const subject = createSubject(workspaceId, { workspace: "enabled", ...livingKey, ...asMade });
  return { kind: "workspace", workspaceId, keyId, secret, subject };
}

/** A successor begins with the settings of the key that it replaces. */
export function keySubject(home: WorkspaceSubject, keyId: string, secret: string, settings = asMade): KeySubject {
  const subject = createSubject(keyId, { ...livingKey, ...settings });
  return { kind: "key", keyId, secret, home, settings, subject };
}

const asMade: KeySettings = { enabled: "enabled", grant: "granted", term: "running" };
const livingKey = { life: "there" };

/** What the answer to a call tells about the credential that it was made with. Undefined if it should never be given. */
export function seenOfCaller(
  caller: WorkspaceSubject | KeySubject,
  code: string | "accepted",
  needsToggled: boolean,
): Observation[] | undefined {
  const workspace = caller.kind === "key" ? caller.home.subject : caller.subject;
  const enabled = { subject: workspace, register: "workspace", value: "enabled" };
  if (code === "workspace_disabled") return [{ ...enabled, value: "disabled" }];
  const seen = seenOfKey(caller.subject, verdictOf[code], needsToggled);
  // Of workspace and key, the workspace speaks first; only a key that is not there has none.
  return code === "key_not_found" ? seen : seen && [enabled, ...seen];
}

/** The judgement over a caller in the words of a verification, which follows the same order. */
const verdictOf: Readonly<Record<string, string>> = {
  accepted: "VALID",
  key_not_found: "NOT_FOUND",
  key_disabled: "DISABLED",
  key_expired: "EXPIRED",
  insufficient_permissions: "INSUFFICIENT_PERMISSIONS",
};

/** What a verdict over a key tells about it. The first reason to refuse speaks, so the earlier ones did not apply. */
export function seenOfKey(
  subject: Subject,
  verdict: string | undefined,
  needsToggled: boolean,
): Observation[] | undefined {
  const saw = (register: string, value: string) => ({ subject, register, value });
  const there = saw("life", "there");
  const enabled = saw("enabled", "enabled");
  const running = saw("term", "running");
  if (verdict === "NOT_FOUND") return [saw("life", "deleted")];
  if (verdict === "DISABLED") return [there, saw("enabled", "disabled")];
  if (verdict === "EXPIRED") return [there, enabled, saw("term", "ended")];
  if (verdict === "INSUFFICIENT_PERMISSIONS" && needsToggled) return [there, enabled, running, saw("grant", "lacking")];
  if (verdict !== "VALID") return undefined;
  return needsToggled ? [there, enabled, running, saw("grant", "granted")] : [there, enabled, running];
}
