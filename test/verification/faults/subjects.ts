import { createSubject, type Observation, type Subject } from "./checker.js";

/** A workspace whose first key makes calls while the operator disables and enables it. */
export interface WorkspaceSubject {
  readonly kind: "workspace";
  readonly workspaceId: string;
  readonly keyId: string;
  readonly secret: string;
  readonly subject: Subject;
}

/**
 * A key that makes calls and is verified, while another key of its workspace changes it. That other key never changes.
 */
export interface KeySubject {
  readonly kind: "key";
  readonly keyId: string;
  readonly secret: string;
  readonly keyWorkspace: WorkspaceSubject;
  readonly settings: KeySettings;
  readonly subject: Subject;
}

/** The initial settings of a key. */
export interface KeySettings {
  readonly enabled: string;
  readonly grant: string;
  /** Whether the key has expired, by an update or by its reroll. */
  readonly expiry: string;
}

/**
 * The scope, and the permission of the same name, that is removed from a key and granted again. One update changes
 * scopes and permissions, so one register describes both.
 */
export const toggled = "keys.verify";
const fixedNames = ["keys.read", "keys.create"];

/** The scopes and permissions of a key with or without the toggled name. */
export function grantsFor(grant: string): { scopes: string[]; permissions: string[] } {
  const names = grant === "granted" ? [...fixedNames, toggled] : fixedNames;
  return { scopes: names, permissions: names };
}

export function workspaceSubject(workspaceId: string, keyId: string, secret: string): WorkspaceSubject {
  const subject = createSubject(workspaceId, { workspace: "enabled", ...existingKey, ...initialSettings });
  return { kind: "workspace", workspaceId, keyId, secret, subject };
}

/** @param settings of a rerolled key: those of the key that it replaces */
export function keySubject(
  keyWorkspace: WorkspaceSubject,
  keyId: string,
  secret: string,
  settings = initialSettings,
): KeySubject {
  const subject = createSubject(keyId, { ...existingKey, ...settings });
  return { kind: "key", keyId, secret, keyWorkspace, settings, subject };
}

const initialSettings: KeySettings = { enabled: "enabled", grant: "granted", expiry: "future" };
const existingKey = { existence: "exists" };

/** What the result of a call shows about its caller. Undefined if a correct service never returns it. */
export function observationsOfCaller(
  caller: WorkspaceSubject | KeySubject,
  code: string | "accepted",
  needsToggled: boolean,
): Observation[] | undefined {
  const workspace = caller.kind === "key" ? caller.keyWorkspace.subject : caller.subject;
  const enabled = { subject: workspace, register: "workspace", value: "enabled" };
  if (code === "workspace_disabled") return [{ ...enabled, value: "disabled" }];
  const seen = observationsOfKey(caller.subject, verificationCodeOf[code], needsToggled);
  // The state of the workspace is checked before that of the key. Only a key that does not exist has no workspace.
  return code === "key_not_found" ? seen : seen && [enabled, ...seen];
}

/** The result of authentication as a verification code. Verification checks in the same order. */
const verificationCodeOf: Readonly<Record<string, string>> = {
  accepted: "VALID",
  key_not_found: "NOT_FOUND",
  key_disabled: "DISABLED",
  key_expired: "EXPIRED",
  insufficient_permissions: "INSUFFICIENT_PERMISSIONS",
};

/** What a verification code shows about a key. The first failed check is returned, so the earlier checks passed. */
export function observationsOfKey(
  subject: Subject,
  code: string | undefined,
  needsToggled: boolean,
): Observation[] | undefined {
  const observed = (register: string, value: string) => ({ subject, register, value });
  const exists = observed("existence", "exists");
  const enabled = observed("enabled", "enabled");
  const unexpired = observed("expiry", "future");
  if (code === "NOT_FOUND") return [observed("existence", "deleted")];
  if (code === "DISABLED") return [exists, observed("enabled", "disabled")];
  if (code === "EXPIRED") return [exists, enabled, observed("expiry", "past")];
  if (code === "INSUFFICIENT_PERMISSIONS" && needsToggled)
    return [exists, enabled, unexpired, observed("grant", "missing")];
  if (code !== "VALID") return undefined;
  return needsToggled ? [exists, enabled, unexpired, observed("grant", "granted")] : [exists, enabled, unexpired];
}
