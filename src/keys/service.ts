import { create } from "@bufbuild/protobuf";
import {
  type KeysService,
  VerificationCode,
  type VerifyKeyResponse,
  VerifyKeyResponseSchema,
} from "../../gen/latchkey/v1/keys_service_pb.js";
import { actorOf, type CallContext, callingKey, type Handlers } from "../call/context.js";
import { chain } from "../call/maybe-promise.js";
import { identityNotFound, invalidInput, keyNotFound } from "../errors.js";
import { mintId } from "../ids.js";
import { buildPage, parsePageRequest } from "../pagination.js";
import type { KeyCache } from "../revocation/key-cache.js";
import type { KeyState } from "../revocation/key-state.js";
import { toChanges, toKey, toNewKey, toOwner, toVerifyResponse } from "./convert.js";
import { findKey } from "./find-key.js";
import type { LastUsed } from "./last-used.js";
import { createQueryCache } from "./permission-query.js";
import { checkCreation, checkDeletion, checkGrantedScopes, checkReroll, checkUpdate } from "./scope-rules.js";
import { hashSecret, isWellFormedSecret, mintSecret, prefixOf } from "./secret.js";
import type { KeyChanges, KeyRow, KeysStore } from "./store.js";
import { verify } from "./verify.js";

/**
 * The keys of the caller's workspace.
 *
 * @param now the clock that expiry is checked against
 */
export function createKeysService(store: KeysStore, keyCache: KeyCache, lastUsed: LastUsed, now: () => Date) {
  const queryOf = createQueryCache();

  /** One response per cached key state that is valid. Frozen, so that it is also serialized only once. */
  const validResponses = new WeakMap<KeyState["key"], VerifyKeyResponse>();

  function validResponse(key: KeyState["key"]): VerifyKeyResponse {
    const existing = validResponses.get(key);
    if (existing !== undefined) return existing;
    const response = Object.freeze(create(VerifyKeyResponseSchema, toVerifyResponse(key)));
    validResponses.set(key, response);
    return response;
  }

  /** Changes a key and returns the changed row. */
  async function change(keyId: string, changes: KeyChanges, context: CallContext): Promise<KeyRow> {
    const caller = callingKey(context);
    const { call } = context;
    const by = actorOf(context);
    let previousXid: string | undefined;
    // Retries if the key changes between the check and the update.
    for (;;) {
      const current = await store.readKeyVersion(call, caller.workspaceId, keyId, by);
      if (current === undefined) throw keyNotFound();
      if (current.changedXid === previousXid) throw identityNotFound();
      checkUpdate(caller, current, changes);
      const updated = await store.updateKey(call, current, changes, by);
      if (updated !== undefined) return updated;
      previousXid = current.changedXid;
    }
  }

  /** Deletes a key; false if it does not exist. */
  async function remove(keyId: string, context: CallContext): Promise<boolean> {
    const caller = callingKey(context);
    const by = actorOf(context);
    // Retries if the key changes between the check and the deletion.
    for (;;) {
      const current = await store.readKeyVersion(context.call, caller.workspaceId, keyId, by);
      if (current === undefined) return false;
      checkDeletion(caller, current);
      if (await store.deleteKey(context.call, current, by)) return true;
    }
  }

  return {
    async createKey(request, context) {
      const caller = callingKey(context);
      const secret = mintSecret(request.prefix);
      const key = toNewKey(request, mintId("key"), caller.workspaceId, secret);
      checkCreation(caller, key);
      const response = { keyId: key.keyId, key: secret.plaintext };
      const inserted = await store.insertKey(
        context.call,
        key,
        toOwner(request, caller.workspaceId),
        actorOf(context),
        context.record?.(response),
      );
      if (!inserted) throw identityNotFound();
      return response;
    },

    async getKey({ keyId }, context) {
      const { workspaceId } = callingKey(context);
      const row = await store.findKey(context.call, workspaceId, keyId);
      if (row === undefined) throw keyNotFound();
      return { key: toKey(row) };
    },

    async listKeys(request, context) {
      const { workspaceId } = callingKey(context);
      const page = parsePageRequest("keys", request);
      const { externalId, enabled } = request;
      const found = await store.listKeys(context.call, workspaceId, { externalId, enabled }, page);
      const { rows, pagination } = buildPage("keys", page, found.rows, (row) => row.keyId, found.scannedTo);
      return { keys: rows.map(toKey), pagination };
    },

    async updateKey(request, context) {
      const caller = callingKey(context);
      const changes = toChanges(request, caller.workspaceId);
      checkGrantedScopes(caller, changes.scopes ?? []);
      context.call.revokes = mayRevoke(changes);
      const timeline = keyCache.knownTimeline();
      const isRead = Object.keys(changes).length === 0;
      const row = isRead
        ? await store.findKey(context.call, caller.workspaceId, request.keyId)
        : await change(request.keyId, changes, context);
      if (row === undefined) throw keyNotFound();
      await (isRead ? keyCache.awaitEarlierChanges(context.call, timeline) : keyCache.awaitPropagation());
      return { key: toKey(row) };
    },

    async deleteKey({ keyId }, context) {
      context.call.revokes = true;
      const timeline = keyCache.knownTimeline();
      const deleted = await remove(keyId, context);
      // Also if the key is already deleted: a retrying client may not know how its first attempt ended.
      await (deleted ? keyCache.awaitPropagation() : keyCache.awaitEarlierChanges(context.call, timeline));
      if (!deleted) throw keyNotFound();
      return {};
    },

    async rerollKey({ keyId, expiration }, context) {
      const caller = callingKey(context);
      context.call.revokes = expiration === 0n;
      const by = actorOf(context);
      // Retries if the key changes between the check and the replacement.
      for (;;) {
        const old = await store.readKeyVersion(context.call, caller.workspaceId, keyId, by);
        if (old === undefined) throw keyNotFound();
        checkReroll(caller, old);
        if (old.isExpired) throw rerollOfExpiredKey();
        const secret = mintSecret(prefixOf(old.start));
        const successor = { keyId: mintId("key"), hash: secret.hash, start: secret.start };
        const response = { keyId: successor.keyId, key: secret.plaintext };
        if (await store.replaceKey(context.call, old, Number(expiration), successor, by, context.record?.(response))) {
          await keyCache.awaitPropagation();
          return response;
        }
      }
    },

    verifyKey(request, context) {
      const { workspaceId } = callingKey(context);
      const query = request.permissions === undefined ? undefined : queryOf(request.permissions);
      const found = findKey(keyCache, workspaceId, hashSecret(request.key), context.call, request.key);
      return chain(found, (key) => {
        const code = verify(key, query, now);
        if (key === undefined || code !== VerificationCode.VALID) return { valid: false, code };
        lastUsed.record(key.keyId, Date.now());
        return validResponse(key);
      });
    },

    async whoami({ key }, context) {
      const { workspaceId } = callingKey(context);
      const row = isWellFormedSecret(key)
        ? await store.findKeyByHash(context.call, workspaceId, hashSecret(key))
        : undefined;
      if (row === undefined) throw keyNotFound();
      return { key: toKey(row) };
    },
  } satisfies Handlers<typeof KeysService>;
}

/** Whether a change can make the key unusable for something that it was valid for. */
function mayRevoke({ enabled, expiresAt, scopes, permissions }: KeyChanges): boolean {
  return enabled === false || scopes !== undefined || permissions !== undefined || expiresAt instanceof Date;
}

/** A new key inherits the expiry of the key that it replaces. */
function rerollOfExpiredKey() {
  const message = "refers to an expired key; set a new `expires` with updateKey before rerolling it";
  return invalidInput([{ location: "keyId", message }]);
}
