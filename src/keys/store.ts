import type { JsonObject } from "@bufbuild/protobuf";
import { type IdentityReference, idOf, insertIdentity, type NewIdentity } from "../identities/store.js";
import type { PageRequest } from "../page.js";
import { jsonText, type Sql, type Statement, words } from "../storage/postgres.js";

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
  readonly createdAt: Date;
}

/** A key as it can be read back, with its identity beside it. */
export interface KeyRow extends Omit<NewKey, "hash"> {
  readonly updatedAt: Date;
  readonly identityId: string | null;
  readonly externalId: string;
  readonly identityMeta: JsonObject;
  readonly identityCreatedAt: Date;
  readonly identityUpdatedAt: Date;
}

/** Who is to own a new key: an identity that is there, or one that is stored with the key unless it is there. */
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

export type KeysStore = ReturnType<typeof createKeysStore>;

export function createKeysStore(sql: Sql) {
  return {
    /** False if the owner does not exist; then nothing is stored. */
    async insertKey(key: NewKey, owner: Owner | undefined): Promise<boolean> {
      return sql.begin(async (transaction) => {
        if (owner === undefined) {
          await insertKey(transaction, key, null);
          return true;
        }
        if (owner.kind === "named") await insertIdentity(transaction, owner.identity);
        const identityId = await lockIdentity(transaction, key.workspaceId, referenceTo(owner));
        if (identityId === undefined) return false;
        await insertKey(transaction, key, identityId);
        return true;
      });
    },

    async findCredential(hash: Buffer): Promise<Credential | undefined> {
      const [row] = await sql<Credential[]>`
        select key_id, workspace_id, keys.enabled, permissions, expires_at,
          workspaces.changed_epoch as workspace_changed_epoch, (select value from epoch) as epoch
        from keys join workspaces using (workspace_id) where hash = ${hash}`;
      return row;
    },

    async listKeys(workspaceId: string, page: PageRequest): Promise<KeyRow[]> {
      return sql<KeyRow[]>`
        select key_id, keys.workspace_id, start, name, enabled, permissions, keys.meta, expires_at,
          keys.created_at, keys.updated_at, identity_id, external_id, identities.meta as identity_meta,
          identities.created_at as identity_created_at, identities.updated_at as identity_updated_at
        from keys left join identities using (identity_id)
        where keys.workspace_id = ${workspaceId} and key_id > ${page.after}
        order by key_id limit ${page.limit + 1}`;
    },
  };
}

/** Stores a key as part of a larger transaction, such as the making of its workspace. */
export async function insertKey(sql: Statement, key: NewKey, identityId: string | null): Promise<void> {
  await sql`
    insert into keys (key_id, workspace_id, hash, start, name, enabled, permissions, identity_id, meta, expires_at,
      created_at, updated_at)
    values (${key.keyId}, ${key.workspaceId}, ${key.hash}, ${key.start}, ${key.name}, ${key.enabled},
      ${words(sql, key.permissions)}, ${identityId}, ${key.meta && jsonText(sql, key.meta)}, ${key.expiresAt},
      ${key.createdAt}, ${key.createdAt})`;
}

/** Finds an identity and keeps it from being deleted until the transaction ends. */
async function lockIdentity(sql: Statement, workspaceId: string, reference: IdentityReference) {
  const [row] = await sql<{ identityId: string }[]>`
    select identity_id from identities where identity_id = ${idOf(sql, workspaceId, reference)} for key share`;
  return row?.identityId;
}

function referenceTo(owner: Owner): IdentityReference {
  return owner.kind === "named"
    ? { case: "externalId", value: owner.identity.externalId }
    : { case: "identityId", value: owner.identityId };
}
