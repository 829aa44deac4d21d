import type { Call } from "../call/call.js";
import { chain, type MaybePromise } from "../call/maybe-promise.js";
import type { KeyCache } from "../revocation/key-cache.js";
import type { KeyState } from "../revocation/key-state.js";
import { hashSecret, isWellFormedSecret } from "./secret.js";

/**
 * Finds a key of a workspace by the hash of its secret: at once if it is cached in memory. A key of another workspace is
 * not found.
 *
 * @param secret if it is known. One that is malformed is looked up only if the workspace has imported keys
 */
export function findKey(
  keyCache: Pick<KeyCache, "ensureLease" | "peek" | "get" | "mayHaveImports">,
  workspaceId: string,
  hash: string,
  call: Call,
  secret?: string,
): MaybePromise<KeyState["key"] | undefined> {
  const ofWorkspace = (found: KeyState | undefined) => (found?.key.workspaceId === workspaceId ? found.key : undefined);
  // Without the lease, cached keys may not be used, and one of another workspace would not be recognized as cached.
  return chain(keyCache.ensureLease(), () => {
    const cached = keyCache.peek(hash);
    const key = ofWorkspace(cached);
    if (key !== undefined) return key;
    if (secret !== undefined && !mayExist(keyCache, workspaceId, secret)) return undefined;
    // Against a timing side channel: a cached key of another workspace takes as long as a key that does not exist.
    return chain(keyCache.get(cached === undefined ? hash : hashSecret(hash), call), ofWorkspace);
  });
}

/** Whether a secret can belong to a key of the workspace. Detects most mistakes without a lookup. */
export function mayExist(keyCache: Pick<KeyCache, "mayHaveImports">, workspaceId: string, secret: string): boolean {
  return isWellFormedSecret(secret) || keyCache.mayHaveImports(workspaceId);
}
