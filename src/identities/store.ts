import type { JsonObject } from "@bufbuild/protobuf";
import { type Author, recordChange } from "../audit/store.js";
import type { PageRequest } from "../page.js";
import { jsonText, type Sql, type Statement, transact } from "../storage/postgres.js";

/** An identity as it is stored. */
export interface IdentityRow {
  readonly identityId: string;
  readonly externalId: string;
  readonly meta: JsonObject;
  readonly createdAt: Date;
  readonly updatedAt: Date;
}

/** An identity about to be stored. */
export type NewIdentity = Omit<IdentityRow, "createdAt" | "updatedAt"> & { readonly workspaceId: string };

/** How a caller may refer to an identity: by one of its two identifiers, or by either. */
export interface IdentityReference {
  readonly case: "identityId" | "externalId" | "identity";
  readonly value: string;
}

export type IdentitiesStore = ReturnType<typeof createIdentitiesStore>;

export function createIdentitiesStore(sql: Sql) {
  const columns = sql`identity_id, external_id, meta, created_at, updated_at`;

  return {
    /** False if the workspace has an identity with this externalId already. */
    insertIdentity: (identity: NewIdentity, by: Author): Promise<boolean> =>
      transact(sql, (transaction) => addIdentity(transaction, identity, by)),

    async findIdentity(workspaceId: string, reference: IdentityReference): Promise<IdentityRow | undefined> {
      const [row] = await sql<IdentityRow[]>`
        select ${columns} from identities where identity_id = ${idOf(sql, workspaceId, reference)}`;
      return row;
    },

    /** With a search, only those whose externalId contains it, letter case aside. */
    async listIdentities(workspaceId: string, search: string | undefined, page: PageRequest): Promise<IdentityRow[]> {
      const found = search === undefined ? sql`` : sql`and strpos(lower(external_id), lower(${search})) > 0`;
      return sql<IdentityRow[]>`
        select ${columns} from identities
        where workspace_id = ${workspaceId} and identity_id > ${page.after} ${found}
        order by identity_id limit ${page.limit + 1}`;
    },

    /** Undefined if there is no such identity. */
    async updateMeta(workspaceId: string, reference: IdentityReference, meta: JsonObject, by: Author) {
      return transact(sql, async (transaction) => {
        const [before] = await transaction<IdentityRow[]>`
          select ${columns} from identities
          where identity_id = ${idOf(transaction, workspaceId, reference)} for no key update`;
        if (before === undefined) return undefined;
        const [after] = await transaction<IdentityRow[]>`
          update identities set meta = ${jsonText(transaction, meta)}, updated_at = ${by.at}
          where identity_id = ${before.identityId} returning ${columns}`;
        if (after === undefined) throw new Error("an identity vanished while it was locked");
        const change = { workspaceId, type: "identity.update", resourceId: before.identityId } as const;
        await recordChange(transaction, by, { ...change, before: told(before), after: told(after) });
        return after;
      });
    },

    /** Its keys stay, without an identity. False if there was nothing to delete. */
    async deleteIdentity(workspaceId: string, reference: IdentityReference, by: Author): Promise<boolean> {
      return transact(sql, async (transaction) => {
        // The keys first: their loss of the identity takes the epoch, which comes last in every transaction.
        await transaction`
          select from keys where identity_id = ${idOf(transaction, workspaceId, reference)} for update`;
        const [before] = await transaction<IdentityRow[]>`
          delete from identities where identity_id = ${idOf(transaction, workspaceId, reference)} returning ${columns}`;
        if (before === undefined) return false;
        const change = { workspaceId, type: "identity.delete", resourceId: before.identityId } as const;
        await recordChange(transaction, by, { ...change, before: told(before), after: null });
        return true;
      });
    },
  };
}

/** Stores an identity as part of a larger transaction. False if the workspace has one with this externalId already. */
export async function addIdentity(sql: Statement, identity: NewIdentity, by: Author): Promise<boolean> {
  const { identityId, workspaceId, externalId, meta } = identity;
  const { count } = await sql`
    insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)
    values (${identityId}, ${workspaceId}, ${externalId}, ${jsonText(sql, meta)}, ${by.at}, ${by.at})
    on conflict (workspace_id, external_id) do nothing`;
  if (count === 0) return false;
  const change = { workspaceId, type: "identity.create", resourceId: identityId } as const;
  await recordChange(sql, by, { ...change, before: null, after: told(identity) });
  return true;
}

/** The id of the identity that is referred to, as a subquery: nothing outside the workspace is ever found. */
export function idOf(sql: Statement, workspaceId: string, reference: IdentityReference) {
  const { value } = reference;
  const match = {
    identityId: () => sql`identity_id = ${value}`,
    externalId: () => sql`external_id = ${value}`,
    // If one identity's externalId reads like another's identityId, the identityId speaks.
    identity: () =>
      sql`(identity_id = ${value} or external_id = ${value}) order by identity_id = ${value} desc limit 1`,
  }[reference.case];
  return sql`(select identity_id from identities where workspace_id = ${workspaceId} and ${match()})`;
}

/** An identity as the audit tells it. */
function told({ externalId, meta }: Pick<IdentityRow, "externalId" | "meta">): JsonObject {
  return { externalId, meta };
}
