import type { KeyState } from "../../../src/revocation/key-state.js";
import type { Contents } from "./postgres.js";

/** How every complaint ends. */
export const outdated = "a change is missing that was acknowledged before the call began";

/**
 * What is wrong with an answer, given what the database said from the last change that was acknowledged before the call
 * began until now: of the key and of its workspace, the answer must agree with some moment of it.
 */
export function missing(found: KeyState | undefined, moments: readonly Contents[]): string | undefined {
  if (!moments.some((moment) => agreesOnKey(found, moment)))
    return `a key was taken for ${found ? `${stateOf(found.key)}, of ${found.key.externalId}` : "deleted"}: ${outdated}`;
  if (found !== undefined && !moments.some((moment) => found.workspaceEnabled === moment.workspaceEnabled))
    return `a workspace was taken for ${stateOf({ enabled: found.workspaceEnabled })}: ${outdated}`;
  return undefined;
}

/** What is wrong with the end of a call, given what the database said from the moment that it is bound by until now. */
export function missingAtEnd(code: string, moments: readonly Contents[]): string | undefined {
  const explains = explanations[code];
  if (explains === undefined || explains.every((explain) => moments.some(explain))) return undefined;
  return `a call ended with ${code}: ${outdated}`;
}

/** Each of these must have been so at some moment. What is unavailable, or overdue, needs no explanation. */
const explanations: Readonly<Record<string, readonly ((moment: Contents) => boolean)[]>> = {
  ok: [
    ({ workspaceEnabled }) => workspaceEnabled,
    ({ keyEnabled, keyDeleted, keyEnded }) => keyEnabled && !keyDeleted && !keyEnded,
  ],
  "authorization/workspace_disabled": [({ workspaceEnabled }) => !workspaceEnabled],
  "authorization/key_disabled": [({ keyEnabled }) => !keyEnabled],
  "authentication/key_not_found": [({ keyDeleted }) => keyDeleted],
  "authentication/key_expired": [({ keyEnded, keyExpiresAt }) => keyEnded || keyExpiresAt !== null],
};

/** What is wrong with a call that is accepted although, by the database's clock, its key had expired before it began. */
export const expired = "a key was accepted that had expired before the call began";

/** What is wrong with a call that runs although its deadline has passed. */
export const overdue = "a call was begun whose deadline had passed";

function agreesOnKey(found: KeyState | undefined, moment: Contents): boolean {
  if (found === undefined || moment.keyDeleted) return found === undefined && moment.keyDeleted;
  const { enabled, ended, expiresAt, externalId } = found.key;
  return (
    enabled === moment.keyEnabled &&
    ended === moment.keyEnded &&
    (expiresAt?.getTime() ?? null) === moment.keyExpiresAt &&
    externalId === moment.ownerName
  );
}

function stateOf({ enabled }: { enabled: boolean }): string {
  return enabled ? "enabled" : "disabled";
}
