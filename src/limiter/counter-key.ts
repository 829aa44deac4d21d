import { hash } from "node:crypto";

// A script runs on one node of a Redis cluster, and the hash tag (the part in braces) decides on which. So all counters of
// one check have the same hash tag. Texts of users are hashed: they may contain braces, and may be long.

/** The hash tag of all counters that one verification may need: the identity of the key, or the key if it has none. */
export function hashTagOf(key: { readonly keyId: string; readonly identityId: string | null }): string {
  return key.identityId ?? key.keyId;
}

/**
 * The Redis key of a rate limit of a key or an identity. It contains neither the limit nor the id of the rate limit, so a
 * rate limit that keeps its name and duration keeps its counter. A key that gets another identity begins new windows,
 * because its counters move to the node of that identity.
 *
 * @param ownerId the key or the identity that has the rate limit
 */
export function verificationCounterKey(hashTag: string, ownerId: string, name: string, durationMs: number): string {
  return `latchkey:limit:{${hashTag}}:${ownerId}:${digest(name)}:${durationMs}`;
}

/**
 * The Redis key of an identifier of the stand-alone limiter. The hash tag is the workspace, because a call may check any
 * identifiers of its workspace together, all or nothing. So one node counts for a workspace, and workspaces are spread
 * over the nodes.
 */
export function limiterCounterKey(
  workspaceId: string,
  namespace: string,
  identifier: string,
  durationMs: number,
): string {
  return `latchkey:limit:{${workspaceId}}:${digest(namespace, identifier)}:${durationMs}`;
}

/** JSON, because it separates the texts unambiguously. */
function digest(...texts: readonly string[]): string {
  return hash("sha256", JSON.stringify(texts), "base64url");
}
