import type { Standing } from "../../src/auth/holdings.js";
import type { Contents } from "./postgres.js";

/** How every complaint ends. */
export const outdated = "a change is missing that was acknowledged before the call began";

/**
 * What is wrong with an answer, given what the database said from the last change that was acknowledged before the call
 * began until now: of the key and of its workspace, the answer must agree with some moment of it.
 */
export function missing(found: Standing | undefined, moments: readonly Contents[]): string | undefined {
  if (!moments.some((moment) => agreesOnKey(found, moment)))
    return `a key was taken for ${found ? `${stateOf(found.key)}, of ${found.key.externalId}` : "deleted"}: ${outdated}`;
  if (found !== undefined && !moments.some((moment) => found.workspaceEnabled === moment.workspaceEnabled))
    return `a workspace was taken for ${stateOf({ enabled: found.workspaceEnabled })}: ${outdated}`;
  return undefined;
}

function agreesOnKey(found: Standing | undefined, { keyDeleted, keyEnabled, ownerName }: Contents): boolean {
  if (found === undefined || keyDeleted) return found === undefined && keyDeleted;
  return found.key.enabled === keyEnabled && found.key.externalId === ownerName;
}

function stateOf({ enabled }: { enabled: boolean }): string {
  return enabled ? "enabled" : "disabled";
}
