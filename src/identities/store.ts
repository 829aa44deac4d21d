import type { JsonObject } from "@bufbuild/protobuf";
import type { PendingQuery } from "postgres";
import { hasChanged, insertAuditEvents } from "../audit/store.js";
import type { Call, IdempotencyRecord } from "../call/call.js";
import type { Actor } from "../call/context.js";
import { insertIdempotencyRecord } from "../idempotency/store.js";
import type { PageRequest } from "../pagination.js";
import type { Quotas } from "../quotas/quotas.js";
import { type QuotaCheck, reachedQuota, refuseBeyondQuota } from "../quotas/quotas.js";
import { type Fragment, jsonParameter, type Sql, type Statement } from "../storage/postgres/connection.js";
import { pageOf, readScannedPage, type ScannedPage, scannedPageOf } from "../storage/postgres/paging.js";
import { readOne, run } from "../storage/postgres/query.js";

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

export function createIdentitiesStore(sql: Sql, quotas: Quotas) {
  const columns = sql`identity_id, external_id, meta, created_at, updated_at`;

  // Written out, because this is asked often: what is put together from parts costs as much again as to ask it.
  const find: Record<IdentityReference["case"], (workspaceId: string, value: string) => PendingQuery<IdentityRow[]>> = {
    identityId: (workspaceId, value) => sql`
      select identity_id, external_id, meta, created_at, updated_at from identities
      where workspace_id = ${workspaceId} and identity_id = ${value} and deleted_at is null`,
    externalId: (workspaceId, value) => sql`
      select identity_id, external_id, meta, created_at, updated_at from identities
      where workspace_id = ${workspaceId} and external_id = ${value} and deleted_at is null`,
    // If one identity's externalId reads like another's identityId, the identityId speaks.
    identity: (workspaceId, value) => sql`
      select identity_id, external_id, meta, created_at, updated_at from identities
      where workspace_id = ${workspaceId} and (identity_id = ${value} or external_id = ${value}) and deleted_at is null
      order by identity_id = ${value} desc limit 1`,
  };

  return {
    /** False if the workspace has an identity with this externalId already. */
    async insertIdentity(
      call: Call,
      identity: NewIdentity,
      by: Actor,
      answer: IdempotencyRecord | undefined,
    ): Promise<boolean> {
      const told = sql`select (added).workspace_id, (added).identity_id, null::json, audit_snapshot(added) from added`;
      const reached = reachedQuota(sql, quotas, identity.workspaceId, { identities: true });
      const [row] = await run(
        call,
        sql<(QuotaCheck & { added: boolean })[]>`
        with room as (select ${reached} as reached),
          added as (
            ${insertion(sql, identity)} from room where reached is null
            on conflict (workspace_id, external_id) where deleted_at is null do nothing returning identities as added),
          events as (${insertAuditEvents(sql, by, ["identity.create", told])})
          ${insertIdempotencyRecord(sql, answer, sql`added`)}
        select reached, exists (select from added) as added from room`,
      );
      refuseBeyondQuota(quotas, row);
      return row?.added === true;
    },

    async findIdentity(
      call: Call,
      workspaceId: string,
      reference: IdentityReference,
    ): Promise<IdentityRow | undefined> {
      const [row] = await readOne(call, find[reference.case](workspaceId, reference.value));
      return row;
    },

    /** With a search, only those whose externalId contains it, letter case aside. */
    async listIdentities(
      call: Call,
      workspaceId: string,
      search: string | undefined,
      page: PageRequest,
    ): Promise<ScannedPage<IdentityRow>> {
      // In the order of the one index that has a workspace's identities together; see the list of keys.
      const behind = sql`
        (workspace_id, identity_id) > (${workspaceId}, ${page.after}) and workspace_id <= ${workspaceId}
        and deleted_at is null`;
      const order = sql`workspace_id, identity_id`;
      const all = sql`select ${columns}, workspace_id from identities where ${behind}`;
      if (search === undefined) {
        return { rows: await run(call, pageOf<IdentityRow>(sql, all, order, page.limit)), scannedTo: undefined };
      }
      // The text that is searched in stands in the index: only what is found is read from the table.
      const found = scannedPageOf<IdentityRow>(sql, {
        rows: sql`select identity_id, external_id from identities where ${behind} order by ${order}`,
        column: sql`identity_id`,
        direction: sql`asc`,
        // As a subquery, what is searched for is folded once, and not again for each row.
        filter: sql`strpos(case_folded(external_id), (select case_folded(${search}))) > 0`,
        limit: page.limit,
        whole: sql`select ${columns} from identities where identity_id`,
        id: (identityId) => identityId,
      });
      return readScannedPage(await run(call, found));
    },

    /** Undefined if there is no such identity. */
    async updateMeta(call: Call, workspaceId: string, reference: IdentityReference, meta: JsonObject, by: Actor) {
      const told = sql`
        select (a.after).workspace_id, (a.after).identity_id, audit_snapshot(b.before), audit_snapshot(a.after)
        from before b, after a
        where ${hasChanged(sql)}`;
      // An empty meta takes away, and no quota is in the way of that.
      const reached = Object.keys(meta).length === 0 ? sql`null::text` : reachedQuota(sql, quotas, workspaceId, {});
      const [row] = await run(
        call,
        sql<(IdentityRow & QuotaCheck)[]>`
        with before as (
            select identities as before from identities
            where identity_id = ${idOf(sql, workspaceId, reference)} and deleted_at is null for no key update),
          room as (select ${reached} as reached from before),
          after as (
            update identities set meta = ${jsonParameter(sql, meta)}, updated_at = now() from before, room
            where identities.identity_id = (before).identity_id and reached is null returning identities as after),
          events as (${insertAuditEvents(sql, by, ["identity.update", told])})
        select reached, (after).* from room left join after on true`,
      );
      refuseBeyondQuota(quotas, row);
      return row;
    },

    /**
     * Its keys stay, without an identity; none of their rows changes, however many there are. The row of the identity stays
     * for a while, without its content. False if there was nothing to delete.
     */
    async deleteIdentity(call: Call, workspaceId: string, reference: IdentityReference, by: Actor): Promise<boolean> {
      const told = sql`
        select (before).workspace_id, (before).identity_id, audit_snapshot(before), null::json from before, gone`;
      // Locked for update: whoever is giving this identity to a key has it locked against that.
      const gone = await run(
        call,
        sql`
          with before as (
              select identities as before from identities
              where identity_id = ${idOf(sql, workspaceId, reference)} and deleted_at is null for update),
            gone as (
              update identities set deleted_at = now(), external_id = '', meta = '{}' from before
              where identities.identity_id = (before).identity_id returning identities as gone),
            events as (${insertAuditEvents(sql, by, ["identity.delete", told])})
          select from gone`,
      );
      return gone.length === 1;
    },
  };
}

/** The insertion of an identity, as part of a statement; `from` or `where` may follow. */
export function insertion(sql: Statement, identity: NewIdentity): Fragment {
  const { identityId, workspaceId, externalId, meta } = identity;
  return sql`
    insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)
    select ${identityId}, ${workspaceId}, ${externalId}, ${jsonParameter(sql, meta)}, now(), now()`;
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
  return sql`(
    select identity_id from identities where workspace_id = ${workspaceId} and deleted_at is null and ${match()})`;
}
