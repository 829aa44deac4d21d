import type { JsonObject } from "@bufbuild/protobuf";
import type { PendingQuery } from "postgres";
import { type Author, events, isChange } from "../audit/store.js";
import type { Call, KeptAnswer } from "../call.js";
import { keeping } from "../once/store.js";
import type { PageRequest } from "../page.js";
import { pageOf } from "../storage/pages.js";
import { type Fragment, jsonText, type Sql, type Statement } from "../storage/postgres.js";
import { run } from "../storage/run.js";

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

  // Written out, because this is asked often: what is put together from parts costs as much again as to ask it.
  const find: Record<IdentityReference["case"], (workspaceId: string, value: string) => PendingQuery<IdentityRow[]>> = {
    identityId: (workspaceId, value) => sql`
      select identity_id, external_id, meta, created_at, updated_at from identities
      where workspace_id = ${workspaceId} and identity_id = ${value}`,
    externalId: (workspaceId, value) => sql`
      select identity_id, external_id, meta, created_at, updated_at from identities
      where workspace_id = ${workspaceId} and external_id = ${value}`,
    // If one identity's externalId reads like another's identityId, the identityId speaks.
    identity: (workspaceId, value) => sql`
      select identity_id, external_id, meta, created_at, updated_at from identities
      where workspace_id = ${workspaceId} and (identity_id = ${value} or external_id = ${value})
      order by identity_id = ${value} desc limit 1`,
  };

  return {
    /** False if the workspace has an identity with this externalId already. */
    async insertIdentity(
      call: Call,
      identity: NewIdentity,
      by: Author,
      answer: KeptAnswer | undefined,
    ): Promise<boolean> {
      const told = sql`select (added).workspace_id, (added).identity_id, null::json, told(added) from added`;
      const added = await run(
        call,
        sql`
        with added as (
            ${insertion(sql, identity, by)} where true
            on conflict (workspace_id, external_id) do nothing returning identities as added),
          events as (${events(sql, by, ["identity.create", told])})
          ${keeping(sql, answer, sql`added`)}
        select from added`,
      );
      return added.length === 1;
    },

    async findIdentity(
      call: Call,
      workspaceId: string,
      reference: IdentityReference,
    ): Promise<IdentityRow | undefined> {
      const [row] = await run(call, find[reference.case](workspaceId, reference.value));
      return row;
    },

    /** With a search, only those whose externalId contains it, letter case aside. */
    async listIdentities(
      call: Call,
      workspaceId: string,
      search: string | undefined,
      page: PageRequest,
    ): Promise<IdentityRow[]> {
      const found = search === undefined ? sql`` : sql`and strpos(folded(external_id), folded(${search})) > 0`;
      // In the order of the one index that has a workspace's identities together; see the list of keys.
      const behind = sql`
        select ${columns}, workspace_id from identities
        where (workspace_id, identity_id) > (${workspaceId}, ${page.after}) and workspace_id <= ${workspaceId} ${found}`;
      return run(call, pageOf<IdentityRow>(sql, behind, sql`workspace_id, identity_id`, page.limit));
    },

    /** Undefined if there is no such identity. */
    async updateMeta(call: Call, workspaceId: string, reference: IdentityReference, meta: JsonObject, by: Author) {
      const told = sql`
        select (a.after).workspace_id, (a.after).identity_id, told(b.before), told(a.after) from before b, after a
        where ${isChange(sql)}`;
      const [row] = await run(
        call,
        sql<IdentityRow[]>`
        with before as (
            select identities as before from identities
            where identity_id = ${idOf(sql, workspaceId, reference)} for no key update),
          after as (
            update identities set meta = ${jsonText(sql, meta)}, updated_at = ${by.at} from before
            where identities.identity_id = (before).identity_id returning identities as after),
          events as (${events(sql, by, ["identity.update", told])})
        select (after).* from after`,
      );
      return row;
    },

    /** Its keys stay, without an identity. False if there was nothing to delete. */
    async deleteIdentity(call: Call, workspaceId: string, reference: IdentityReference, by: Author): Promise<boolean> {
      const told = sql`select (gone).workspace_id, (gone).identity_id, told(gone), null::json from gone`;
      const identityId = idOf(sql, workspaceId, reference);
      // Its keys are locked first: what is changing one of them is told before the loss of the identity.
      const gone = await run(
        call,
        sql`
          with owned as (
              select from keys where identity_id = ${identityId} order by key_id for no key update),
            gone as (
              delete from identities where identity_id = ${identityId} and (select count(*) from owned) >= 0
              returning identities as gone),
            events as (${events(sql, by, ["identity.delete", told])})
          select from gone`,
      );
      return gone.length === 1;
    },
  };
}

/** The insertion of an identity, as part of a statement; `where` and a condition may follow. */
export function insertion(sql: Statement, identity: NewIdentity, by: Author): Fragment {
  const { identityId, workspaceId, externalId, meta } = identity;
  return sql`
    insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)
    select ${identityId}, ${workspaceId}, ${externalId}, ${jsonText(sql, meta)}, ${by.at}, ${by.at}`;
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
