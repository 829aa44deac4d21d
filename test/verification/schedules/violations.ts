import type { KeyState } from "../../../src/revocation/key-state.js";
import type { Contents } from "./postgres.js";

/** How every message of a violation ends, unless one of those below applies. */
export const outdated = "a change is missing that was acknowledged before the call began";

/**
 * The violation in the result of a lookup, if any. `moments` are the contents of the database from the last change that
 * was acknowledged before the call began until now. The result must agree with one of them on the key, and with one of
 * them on the workspace.
 */
export function missing(found: KeyState | undefined, moments: readonly Contents[]): string | undefined {
  if (!moments.some((moment) => agreesOnKey(found, moment)))
    return `a key was read as ${found ? `${stateOf(found.key)}, of ${found.key.externalId}` : "deleted"}: ${outdated}`;
  if (found !== undefined && !moments.some((moment) => agreesOnWorkspace(found, moment)))
    return `a workspace was read as ${stateOf({ enabled: found.workspaceEnabled })}: ${outdated}`;
  return undefined;
}

/**
 * The violation in the result of a call, if any. `moments` are the contents of the database since the call was bound by
 * them.
 */
export function missingAtEnd(code: string, moments: readonly Contents[]): string | undefined {
  const conditions = requiredConditions[code];
  if (conditions === undefined || conditions.every((holds) => moments.some(holds))) return undefined;
  return `a call ended with ${code}: ${outdated}`;
}

/** Each of these must have held at some moment. The codes `unavailable` and `deadline_exceeded` are always allowed. */
const requiredConditions: Readonly<Record<string, readonly ((moment: Contents) => boolean)[]>> = {
  ok: [
    ({ workspaceEnabled, workspaceDeleted }) => workspaceEnabled && !workspaceDeleted,
    ({ keyEnabled, keyDeleted, keyEnded }) => keyEnabled && !keyDeleted && !keyEnded,
  ],
  "authorization/workspace_disabled": [({ workspaceEnabled }) => !workspaceEnabled],
  "authorization/key_disabled": [({ keyEnabled }) => !keyEnabled],
  "authentication/key_not_found": [({ keyDeleted, workspaceDeleted }) => keyDeleted || workspaceDeleted],
  "authentication/key_expired": [({ keyEnded, keyExpiresAt }) => keyEnded || keyExpiresAt !== null],
};

/** The violation of a call that is accepted although its key had expired before it began, by the database's clock. */
export const expired = "a key was accepted that had expired before the call began";

/** The violation of a change that was made although its key had expired, by the database's clock. */
export const expiredChange = "a change was made with a key that had expired";

/** The violation of a call that runs although its deadline has passed. */
export const overdue = "a call was begun after its deadline";

function agreesOnKey(found: KeyState | undefined, moment: Contents): boolean {
  if (found === undefined) return moment.keyDeleted || moment.workspaceDeleted;
  if (moment.keyDeleted) return false;
  const { enabled, ended, expiresAt, externalId } = found.key;
  return (
    enabled === moment.keyEnabled &&
    ended === moment.keyEnded &&
    (expiresAt?.getTime() ?? null) === moment.keyExpiresAt &&
    externalId === moment.ownerName
  );
}

function agreesOnWorkspace(found: KeyState, { workspaceEnabled, workspaceDeleted }: Contents): boolean {
  return !workspaceDeleted && found.workspaceEnabled === workspaceEnabled;
}

function stateOf({ enabled }: { enabled: boolean }): string {
  return enabled ? "enabled" : "disabled";
}
