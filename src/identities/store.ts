import type { JsonObject } from "@bufbuild/protobuf";
import type { PageRequest } from "../page.js";
import { jsonText, type Sql, type Statement } from "../storage/postgres.js";

/** An identity as it is stored. */
export interface IdentityRow {
  readonly identityId: string;
  readonly externalId: string;
  readonly meta: JsonObject;
  readonly createdAt: Date;
  readonly updatedAt: Date;
}

/** An identity about to be stored. */
export type NewIdentity = Omit<IdentityRow, "updatedAt"> & { readonly workspaceId: string };

/** How a caller may refer to an identity: by one of its two identifiers, or by either. */
export interface IdentityReference {
  readonly case: "identityId" | "externalId" | "identity";
  readonly value: string;
}

export type IdentitiesStore = ReturnType<typeof createIdentitiesStore>;

export function createIdentitiesStore(sql: Sql) {
  return {
    /** False if the workspace has an identity with this externalId already. */
    insertIdentity: (identity: NewIdentity): Promise<boolean> => insertIdentity(sql, identity),

    async findIdentity(workspaceId: string, reference: IdentityReference): Promise<IdentityRow | undefined> {
      const [row] = await sql<IdentityRow[]>`
        select identity_id, external_id, meta, created_at, updated_at
        from identities where identity_id = ${idOf(sql, workspaceId, reference)}`;
      return row;
    },

    async listIdentities(workspaceId: string, page: PageRequest): Promise<IdentityRow[]> {
      return sql<IdentityRow[]>`
        select identity_id, external_id, meta, created_at, updated_at
        from identities where workspace_id = ${workspaceId} and identity_id > ${page.after}
        order by identity_id limit ${page.limit + 1}`;
    },

    /** Its keys stay, without an identity. False if there was nothing to delete. */
    async deleteIdentity(workspaceId: string, reference: IdentityReference): Promise<boolean> {
      const { count } = await sql`delete from identities where identity_id = ${idOf(sql, workspaceId, reference)}`;
      return count === 1;
    },
  };
}

/** False if the workspace has an identity with this externalId already. */
export async function insertIdentity(sql: Statement, identity: NewIdentity): Promise<boolean> {
  const { identityId, workspaceId, externalId, meta, createdAt } = identity;
  const { count } = await sql`
    insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)
    values (${identityId}, ${workspaceId}, ${externalId}, ${jsonText(sql, meta)}, ${createdAt}, ${createdAt})
    on conflict (workspace_id, external_id) do nothing`;
  return count === 1;
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
