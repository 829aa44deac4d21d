import { create } from "@bufbuild/protobuf";
import {
  type KeysService,
  VerificationCode,
  type VerifyKeyResponse,
  VerifyKeyResponseSchema,
} from "../../gen/latchkey/v1/keys_service_pb.js";
import type { Call } from "../call/call.js";
import { actorOf, type CallContext, callingKey, type Handlers } from "../call/context.js";
import { chain } from "../call/maybe-promise.js";
import { identityNotFound, invalidInput, keyNotFound } from "../errors.js";
import { mintId } from "../ids.js";
import { buildPage, parsePageRequest } from "../pagination.js";
import type { KeyCache } from "../revocation/key-cache.js";
import type { KeyState } from "../revocation/key-state.js";
import { toChanges, toKey, toNewKey, toOwner, toVerifyResponse } from "./convert.js";
import type { LastUsed } from "./last-used.js";
import { createQueryCache } from "./permission-query.js";
import { checkCreation, checkDeletion, checkGivenScopes, checkReroll, checkUpdate } from "./scope-rules.js";
import { hashSecret, isWellFormedSecret, mintSecret, prefixOf } from "./secret.js";
import type { KeyChanges, KeyRow, KeysStore } from "./store.js";
import { verify } from "./verify.js";

/**
 * The keys of the caller's workspace.
 *
 * @param now the time that expiry is judged by
 */
export function createKeysService(store: KeysStore, holdings: KeyCache, lastUsed: LastUsed, now: () => Date) {
  const queryOf = createQueryCache();

  /** For as long as a key is held as it is, there is one good verdict on it: frozen, so that it is also written once. */
  const goodVerdicts = new WeakMap<KeyState["key"], VerifyKeyResponse>();

  function goodVerdictOn(key: KeyState["key"]): VerifyKeyResponse {
    const known = goodVerdicts.get(key);
    if (known !== undefined) return known;
    const verdict = Object.freeze(create(VerifyKeyResponseSchema, toVerifyResponse(key)));
    goodVerdicts.set(key, verdict);
    return verdict;
  }

  /** Looks for a key that this process does not hold for the caller. */
  function lookUp(held: KeyState | undefined, secret: string, hash: string, call: Call) {
    // A text that cannot be a secret of ours is not looked up.
    if (!isWellFormedSecret(secret)) return undefined;
    // What is held of another workspace is looked for as long as what is nowhere: how soon we answer tells nothing.
    return holdings.get(held === undefined ? hash : hashSecret(hash), call);
  }

  /** Changes a key, and returns it as it is then. */
  async function change(keyId: string, changes: KeyChanges, context: CallContext): Promise<KeyRow> {
    const caller = callingKey(context);
    const { call } = context;
    const by = actorOf(context);
    let before: string | undefined;
    // Again, should the key change between the judgement and the change.
    for (;;) {
      const seen = await store.readKeyVersion(call, caller.workspaceId, keyId, by);
      if (seen === undefined) throw keyNotFound();
      if (seen.changedXid === before) throw identityNotFound();
      checkUpdate(caller, seen, changes);
      const updated = await store.updateKey(call, seen, changes, by);
      if (updated !== undefined) return updated;
      before = seen.changedXid;
    }
  }

  /** Deletes a key; false if it does not exist. */
  async function remove(keyId: string, context: CallContext): Promise<boolean> {
    const caller = callingKey(context);
    const by = actorOf(context);
    // Again, should the key change between the check and the deletion.
    for (;;) {
      const seen = await store.readKeyVersion(context.call, caller.workspaceId, keyId, by);
      if (seen === undefined) return false;
      checkDeletion(caller, seen);
      if (await store.deleteKey(context.call, seen, by)) return true;
    }
  }

  return {
    async createKey(request, context) {
      const caller = callingKey(context);
      const secret = mintSecret(request.prefix);
      const key = toNewKey(request, mintId("key"), caller.workspaceId, secret);
      checkCreation(caller, key);
      const answer = { keyId: key.keyId, key: secret.plaintext };
      const stored = await store.insertKey(
        context.call,
        key,
        toOwner(request, caller.workspaceId),
        actorOf(context),
        context.record?.(answer),
      );
      if (!stored) throw identityNotFound();
      return answer;
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
      checkGivenScopes(caller, changes.scopes ?? []);
      context.call.revokes = mayRevoke(changes);
      const history = holdings.knownTimeline();
      const isRead = Object.keys(changes).length === 0;
      const row = isRead
        ? await store.findKey(context.call, caller.workspaceId, request.keyId)
        : await change(request.keyId, changes, context);
      if (row === undefined) throw keyNotFound();
      await (isRead ? holdings.awaitEarlierChanges(context.call, history) : holdings.awaitPropagation());
      return { key: toKey(row) };
    },

    async deleteKey({ keyId }, context) {
      context.call.revokes = true;
      const history = holdings.knownTimeline();
      const deleted = await remove(keyId, context);
      // Also if it is gone already: whoever tries again may not know how the first attempt ended.
      await (deleted ? holdings.awaitPropagation() : holdings.awaitEarlierChanges(context.call, history));
      if (!deleted) throw keyNotFound();
      return {};
    },

    async rerollKey({ keyId, expiration }, context) {
      const caller = callingKey(context);
      context.call.revokes = expiration === 0n;
      const by = actorOf(context);
      // Again, should the key change between the judgement and the change.
      for (;;) {
        const old = await store.readKeyVersion(context.call, caller.workspaceId, keyId, by);
        if (old === undefined) throw keyNotFound();
        checkReroll(caller, old);
        if (old.isExpired) throw successorStillborn();
        const secret = mintSecret(prefixOf(old.start));
        const successor = { keyId: mintId("key"), hash: secret.hash, start: secret.start };
        const answer = { keyId: successor.keyId, key: secret.plaintext };
        if (await store.replaceKey(context.call, old, Number(expiration), successor, by, context.record?.(answer))) {
          await holdings.awaitPropagation();
          return answer;
        }
      }
    },

    verifyKey(request, context) {
      const { workspaceId } = callingKey(context);
      const query = request.permissions === undefined ? undefined : queryOf(request.permissions);
      const hash = hashSecret(request.key);
      const held = holdings.peek(hash);
      const found = held?.key.workspaceId === workspaceId ? held : lookUp(held, request.key, hash, context.call);
      return chain(found, (found) => {
        const key = found?.key.workspaceId === workspaceId ? found.key : undefined;
        const code = verify(key, query, now);
        if (key === undefined || code !== VerificationCode.VALID) return { valid: false, code };
        lastUsed.record(key.keyId, Date.now());
        return goodVerdictOn(key);
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

/** Whether a change can take something from a key that it could be used for. */
function mayRevoke({ enabled, expiresAt, scopes, permissions }: KeyChanges): boolean {
  return enabled === false || scopes !== undefined || permissions !== undefined || expiresAt instanceof Date;
}

/** A key has the expiry of the one that it replaces. */
function successorStillborn() {
  const message =
    "is of a key whose expiry has passed, and so would be its successor's: set `expires` with updateKey first";
  return invalidInput([{ location: "keyId", message }]);
}
