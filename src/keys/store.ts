import type { JsonObject } from "@bufbuild/protobuf";
import { type Author, recordChange } from "../audit/store.js";
import { identityNotFound } from "../errors.js";
import { addIdentity, type IdentityReference, idOf, type NewIdentity } from "../identities/store.js";
import type { PageRequest } from "../page.js";
import { type Fragment, jsonText, type Sql, type Statement, transact, words } from "../storage/postgres.js";

/** A key about to be stored. */
export interface NewKey {
  readonly keyId: string;
  readonly workspaceId: string;
  readonly hash: Buffer;
  readonly start: string;
  readonly name: string | null;
  readonly enabled: boolean;
  readonly permissions: readonly string[];
  readonly meta: JsonObject | null;
  readonly expiresAt: Date | null;
}

/** A key as it can be read back, with its identity beside it. */
export interface KeyRow extends Omit<NewKey, "hash"> {
  readonly createdAt: Date;
  readonly updatedAt: Date;
  readonly lastUsedAt: Date | null;
  readonly identityId: string | null;
  readonly externalId: string;
  readonly identityMeta: JsonObject;
  readonly identityCreatedAt: Date;
  readonly identityUpdatedAt: Date;
}

/** What an update changes; what is undefined stays. */
export interface KeyChanges {
  readonly name?: string | null;
  readonly enabled?: boolean;
  readonly permissions?: readonly string[];
  readonly meta?: JsonObject | null;
  readonly expiresAt?: Date | null;
  /** Null takes the identity off the key. */
  readonly owner?: Owner | null;
}

/** Who is to own a key: an identity that is there, or one that is stored with the key unless it is there. */
export type Owner =
  | { readonly kind: "existing"; readonly identityId: string }
  | { readonly kind: "named"; readonly identity: NewIdentity };

/** What a bearer is judged by. */
export interface Credential {
  readonly keyId: string;
  readonly workspaceId: string;
  readonly enabled: boolean;
  readonly permissions: readonly string[];
  readonly expiresAt: Date | null;
  /** The epoch of the workspace's last change. */
  readonly workspaceChangedEpoch: bigint;
  /** The epoch of the snapshot that all this was read in. */
  readonly epoch: bigint;
}

/** Which keys to list; what is undefined is not asked for. */
export interface KeyFilter {
  readonly externalId: string | undefined;
  readonly enabled: boolean | undefined;
}

export type KeysStore = ReturnType<typeof createKeysStore>;

export function createKeysStore(sql: Sql) {
  /** A living key of the workspace, by what the condition says. */
  const select = (from: Statement, workspaceId: string, condition: Fragment) => from<KeyRow[]>`
    select key_id, keys.workspace_id, start, name, enabled, permissions, keys.meta, expires_at, last_used_at,
      keys.created_at, keys.updated_at, identity_id, external_id, identities.meta as identity_meta,
      identities.created_at as identity_created_at, identities.updated_at as identity_updated_at
    from keys left join identities using (identity_id)
    where keys.workspace_id = ${workspaceId} and deleted_at is null and ${condition}`;

  return {
    /** Throws `identity_not_found` if the owner does not exist; then nothing is stored. */
    async insertKey(key: NewKey, owner: Owner | undefined, by: Author): Promise<void> {
      await transact(sql, async (transaction) => {
        const identityId = owner ? await resolveOwner(transaction, key.workspaceId, owner, by) : null;
        await addKey(transaction, key, identityId, by);
      });
    },

    async findCredential(hash: Buffer): Promise<Credential | undefined> {
      const [row] = await sql<Credential[]>`
        select key_id, workspace_id, keys.enabled, permissions, expires_at,
          workspaces.changed_epoch as workspace_changed_epoch, (select value from epoch) as epoch
        from keys join workspaces using (workspace_id) where hash = ${hash} and deleted_at is null`;
      return row;
    },

    async findKey(workspaceId: string, keyId: string): Promise<KeyRow | undefined> {
      const [row] = await select(sql, workspaceId, sql`key_id = ${keyId}`);
      return row;
    },

    async findKeyByHash(workspaceId: string, hash: Buffer): Promise<KeyRow | undefined> {
      const [row] = await select(sql, workspaceId, sql`hash = ${hash}`);
      return row;
    },

    async listKeys(workspaceId: string, { externalId, enabled }: KeyFilter, page: PageRequest): Promise<KeyRow[]> {
      const ofIdentity = externalId === undefined ? sql`` : sql`and external_id = ${externalId}`;
      const inState = enabled === undefined ? sql`` : sql`and enabled = ${enabled}`;
      const condition = sql`key_id > ${page.after} ${ofIdentity} ${inState} order by key_id limit ${page.limit + 1}`;
      return select(sql, workspaceId, condition);
    },

    /** Undefined if there is no such key. Throws `identity_not_found` if the new owner does not exist. */
    async updateKey(workspaceId: string, keyId: string, changes: KeyChanges, by: Author): Promise<KeyRow | undefined> {
      return transact(sql, async (transaction) => {
        const [before] = await select(transaction, workspaceId, sql`key_id = ${keyId} for update of keys`);
        if (before === undefined) return undefined;
        await transaction`update keys set ${transaction(await columnsOf(transaction, workspaceId, changes, by))}
          where key_id = ${keyId}`;
        const [after] = await select(transaction, workspaceId, sql`key_id = ${keyId}`);
        if (after === undefined) throw new Error("a key vanished while it was locked");
        const change = { workspaceId, type: "key.update", resourceId: keyId } as const;
        await recordChange(transaction, by, { ...change, before: told(before), after: told(after) });
        return after;
      });
    },

    /** False if there was nothing to delete. */
    async deleteKey(workspaceId: string, keyId: string, by: Author): Promise<boolean> {
      return transact(sql, async (transaction) => {
        const [before] = await select(transaction, workspaceId, sql`key_id = ${keyId} for update of keys`);
        if (before === undefined) return false;
        await transaction`update keys set deleted_at = ${by.at} where key_id = ${keyId}`;
        const change = { workspaceId, type: "key.delete", resourceId: keyId } as const;
        await recordChange(transaction, by, { ...change, before: told(before), after: null });
        return true;
      });
    },

    /**
     * Stores the key that takes the place of another, and ends that one at `endsAt`, unless it ends earlier anyway. The
     * successor is made from the old key as it is under lock. False if there is no such key.
     */
    async replaceKey(
      workspaceId: string,
      keyId: string,
      endsAt: Date,
      succeed: (old: KeyRow) => NewKey,
      by: Author,
    ): Promise<boolean> {
      return transact(sql, async (transaction) => {
        const [old] = await select(transaction, workspaceId, sql`key_id = ${keyId} for update of keys`);
        if (old === undefined) return false;
        await addKey(transaction, succeed(old), old.identityId, by);
        const expiresAt = old.expiresAt !== null && old.expiresAt < endsAt ? old.expiresAt : endsAt;
        await transaction`update keys set expires_at = ${expiresAt}, updated_at = ${by.at} where key_id = ${keyId}`;
        const change = { workspaceId, type: "key.reroll", resourceId: keyId } as const;
        await recordChange(transaction, by, { ...change, before: told(old), after: told({ ...old, expiresAt }) });
        return true;
      });
    },

    /** When keys were last used; never sets a time back. */
    async recordUses(uses: ReadonlyMap<string, Date>): Promise<void> {
      const keyIds = [...uses.keys()];
      const times = [...uses.values()].map((at) => at.toISOString());
      await sql`
        update keys set last_used_at = greatest(last_used_at, used.at)
        from unnest(${words(sql, keyIds)}, ${words(sql, times)}::timestamptz[]) as used (key_id, at)
        where keys.key_id = used.key_id`;
    },
  };
}

/** Stores a key as part of a larger transaction, such as the making of its workspace. */
export async function addKey(sql: Statement, key: NewKey, identityId: string | null, by: Author): Promise<void> {
  await sql`
    insert into keys (key_id, workspace_id, hash, start, name, enabled, permissions, identity_id, meta, expires_at,
      created_at, updated_at)
    values (${key.keyId}, ${key.workspaceId}, ${key.hash}, ${key.start}, ${key.name}, ${key.enabled},
      ${words(sql, key.permissions)}, ${identityId}, ${key.meta && jsonText(sql, key.meta)}, ${key.expiresAt},
      ${by.at}, ${by.at})`;
  const change = { workspaceId: key.workspaceId, type: "key.create", resourceId: key.keyId } as const;
  await recordChange(sql, by, { ...change, before: null, after: told({ ...key, identityId }) });
}

/** A key's settings as the audit tells them. */
function told(key: Omit<NewKey, "hash" | "keyId" | "workspaceId"> & { identityId: string | null }): JsonObject {
  const { start, name, enabled, permissions, identityId, meta, expiresAt } = key;
  return {
    start,
    name,
    enabled,
    permissions: [...permissions],
    identityId,
    meta,
    expires: expiresAt?.getTime() ?? null,
  };
}

/** Only what changes is written, so that a mere renaming takes no epoch. */
async function columnsOf(sql: Statement, workspaceId: string, changes: KeyChanges, by: Author) {
  const { name, enabled, permissions, meta, expiresAt, owner } = changes;
  return {
    updated_at: by.at,
    ...(name !== undefined && { name }),
    ...(enabled !== undefined && { enabled }),
    ...(permissions !== undefined && { permissions: words(sql, permissions) }),
    ...(meta !== undefined && { meta: meta && jsonText(sql, meta) }),
    ...(expiresAt !== undefined && { expires_at: expiresAt }),
    ...(owner !== undefined && { identity_id: owner && (await resolveOwner(sql, workspaceId, owner, by)) }),
  };
}

/** The owner's identityId, kept from being deleted until the transaction ends. */
async function resolveOwner(sql: Statement, workspaceId: string, owner: Owner, by: Author): Promise<string> {
  if (owner.kind === "named") await addIdentity(sql, owner.identity, by);
  const reference: IdentityReference =
    owner.kind === "named"
      ? { case: "externalId", value: owner.identity.externalId }
      : { case: "identityId", value: owner.identityId };
  const [row] = await sql<{ identityId: string }[]>`
    select identity_id from identities where identity_id = ${idOf(sql, workspaceId, reference)} for key share`;
  if (row === undefined) throw identityNotFound();
  return row.identityId;
}
