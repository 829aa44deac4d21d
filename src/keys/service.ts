import type { KeysService } from "../../gen/latchkey/v1/keys_service_pb.js";
import { actorOf, type CallContext, callingKey, type Handlers } from "../call/context.js";
import { creditsChangesOf } from "../credits/convert.js";
import { identityNotFound, invalidInput, keyNotFound } from "../errors.js";
import { mintId } from "../ids.js";
import { buildPage, parsePageRequest } from "../pagination.js";
import type { RoleStore } from "../permissions/role-store.js";
import type { PermissionsStore } from "../permissions/store.js";
import type { KeyCache } from "../revocation/key-cache.js";
import { toPeriod, toUsage } from "../usage/convert.js";
import type { UsageStore } from "../usage/store.js";
import { toChanges, toKey, toNewKey, toOwner } from "./convert.js";
import { mayExist } from "./find-key.js";
import { type ChangeKey, createGrants } from "./grants.js";
import { createImport } from "./import.js";
import type { ImportStore } from "./import-store.js";
import type { KeyChanges, KeyRow } from "./rows.js";
import {
  checkCreation,
  checkDeletion,
  checkGrantedScopes,
  checkReroll,
  checkUpdate,
  needsNoCheck,
} from "./scope-rules.js";
import { hashSecret, mintSecret, prefixOf, randomBytesOf } from "./secret.js";
import type { KeysStore } from "./store.js";
import type { VerifyKey } from "./verification.js";

interface KeysServiceSources {
  readonly store: KeysStore;
  readonly imports: ImportStore;
  readonly catalogue: PermissionsStore;
  readonly roles: RoleStore;
  readonly keyCache: KeyCache;
  readonly verifyKey: VerifyKey;
  readonly usage: Pick<UsageStore, "readUsage">;
}

/** The keys of the caller's workspace. */
export function createKeysService({
  store,
  imports,
  catalogue,
  roles,
  keyCache,
  verifyKey,
  usage,
}: KeysServiceSources) {
  const change: ChangeKey = async (keyId, changesOf, context) => {
    const caller = callingKey(context);
    const { call } = context;
    const by = actorOf(context);
    let previousXid: string | undefined;
    // Retries if the key changes between the check and the update.
    for (;;) {
      const current = await store.readKeyVersion(call, caller.workspaceId, keyId, by);
      if (current === undefined) throw keyNotFound();
      if (current.changedXid === previousXid) throw identityNotFound();
      const changes = changesOf(current);
      checkUpdate(caller, current, changes);
      const { credits } = changes;
      const all =
        credits === undefined ? changes : { ...changes, credits: creditsChangesOf(current.hasCredits, credits) };
      const updated = await store.updateKey(call, current, all, by);
      if (updated !== undefined) return updated;
      previousXid = current.changedXid;
    }
  };

  /**
   * Updates a key. Most keys have no scopes. Such a key is updated at once, without a read before: no rule compares anything else
   * of it. New credits depend on those that the key has.
   */
  async function update(keyId: string, changes: KeyChanges, context: CallContext): Promise<KeyRow> {
    const caller = callingKey(context);
    if (changes.credits === undefined && needsNoCheck(caller, keyId, changes)) {
      const unscoped = { workspaceId: caller.workspaceId, keyId };
      const updated = await store.updateKey(context.call, unscoped, changes, actorOf(context));
      if (updated !== undefined) return updated;
    }
    return change(keyId, () => changes, context);
  }

  /** Deletes a key; false if it does not exist. */
  async function remove(keyId: string, erases: boolean, context: CallContext): Promise<boolean> {
    const caller = callingKey(context);
    const by = actorOf(context);
    const unscoped = { workspaceId: caller.workspaceId, keyId };
    if (needsNoCheck(caller, keyId, {}) && (await store.deleteKey(context.call, unscoped, erases, by))) return true;
    // Retries if the key changes between the check and the deletion.
    for (;;) {
      const current = await store.readKeyVersion(context.call, caller.workspaceId, keyId, by);
      if (current === undefined) return false;
      checkDeletion(caller, current);
      if (await store.deleteKey(context.call, current, erases, by)) return true;
    }
  }

  return {
    ...createGrants(change, catalogue, roles, keyCache),
    ...createImport(imports, keyCache),

    async createKey(request, context) {
      const caller = callingKey(context);
      const secret = mintSecret(request.prefix, randomBytesOf(request.byteLength));
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
      const { apiId, externalId, enabled } = request;
      const found = await store.listKeys(context.call, workspaceId, { apiId, externalId, enabled }, page);
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
        : await update(request.keyId, changes, context);
      if (row === undefined) throw keyNotFound();
      await (isRead ? keyCache.awaitEarlierChanges(context.call, timeline) : keyCache.awaitPropagation());
      return { key: toKey(row) };
    },

    async deleteKey({ keyId, permanent = false }, context) {
      context.call.revokes = true;
      const timeline = keyCache.knownTimeline();
      const deleted = await remove(keyId, permanent, context);
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

    verifyKey,

    async getKeyUsage({ keyId, period, tag = "" }, context) {
      const { workspaceId } = callingKey(context);
      const requested = toPeriod(period);
      const key = await store.findKey(context.call, workspaceId, keyId);
      if (key === undefined) throw keyNotFound();
      const rows = await usage.readUsage(context.call, workspaceId, keyId, requested, tag);
      return { usage: rows.map(toUsage) };
    },

    async whoami({ key }, context) {
      const { workspaceId } = callingKey(context);
      const row = mayExist(keyCache, workspaceId, key)
        ? await store.findKeyByHash(context.call, workspaceId, hashSecret(key))
        : undefined;
      if (row === undefined) throw keyNotFound();
      return { key: toKey(row) };
    },
  } satisfies Omit<Handlers<typeof KeysService>, "updateCredits">;
}

/** Whether a change can make the key unusable for something that it was valid for. */
function mayRevoke({ enabled, expiresAt, scopes, permissions, roles, ratelimits, credits }: KeyChanges): boolean {
  const isReduced = [scopes, permissions, roles, ratelimits, credits].some((change) => change !== undefined);
  return enabled === false || isReduced || expiresAt instanceof Date;
}

/** A new key inherits the expiry of the key that it replaces. */
function rerollOfExpiredKey() {
  const message = "refers to an expired key; set a new `expires` with updateKey before rerolling it";
  return invalidInput([{ location: "keyId", message }]);
}
