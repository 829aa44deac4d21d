import type { JsonObject } from "@bufbuild/protobuf";
import { insertAuditEvents, updateFacts } from "../audit/store.js";
import type { Call, IdempotencyRecord } from "../call/call.js";
import type { Actor } from "../call/context.js";
import { insertIdempotencyRecord } from "../idempotency/store.js";
import type { PageRequest } from "../pagination.js";
import type { Quotas } from "../quotas/quotas.js";
import { type QuotaCheck, reachedQuota, refuseBeyondQuota } from "../quotas/quotas.js";
import type { RateLimitSettings } from "../revocation/key-state.js";
import type { Database } from "../storage/postgres/database.js";
import { listPage, type ScannedPage } from "../storage/postgres/paging.js";
import { type Fragment, jsonParameter, sql } from "../storage/postgres/sql.js";

/** A stored identity. */
export interface IdentityRow {
  readonly identityId: string;
  readonly externalId: string;
  readonly meta: JsonObject;
  readonly ratelimits: readonly RateLimitSettings[];
  readonly createdAt: Date;
  readonly updatedAt: Date;
}

/** An identity to be stored. */
export type NewIdentity = Omit<IdentityRow, "createdAt" | "updatedAt"> & { readonly workspaceId: string };

/** The changes of an update. An undefined field stays as it is. */
export interface IdentityChanges {
  readonly meta?: JsonObject;
  readonly ratelimits?: readonly RateLimitSettings[];
}

/** How a caller may refer to an identity: by one of its two identifiers, or by either. */
export interface IdentityReference {
  readonly case: "identityId" | "externalId" | "identity";
  readonly value: string;
}

export type IdentitiesStore = ReturnType<typeof createIdentitiesStore>;

export function createIdentitiesStore(db: Database, quotas: Quotas) {
  const columns = sql`identity_id, external_id, meta, ratelimits, created_at, updated_at`;

  return {
    /** False if the workspace already has an identity with this externalId. */
    async insertIdentity(
      call: Call,
      identity: NewIdentity,
      actor: Actor,
      record: IdempotencyRecord | undefined,
    ): Promise<boolean> {
      const event = sql`select (added).workspace_id, (added).identity_id, null::json, audit_snapshot(added) from added`;
      const reached = reachedQuota(quotas, identity.workspaceId, { identities: true });
      const [row] = await db.run(
        call,
        sql<(QuotaCheck & { added: boolean })[]>`
          with quota as (select ${reached} as reached),
            added as (
              ${insertion(identity)} from quota where reached is null
              on conflict (workspace_id, external_id) where deleted_at is null do nothing returning identities as added),
            events as (${insertAuditEvents(actor, ["identity.create", event])})
            ${insertIdempotencyRecord(record, sql`added`)}
          select reached, exists (select from added) as added from quota`,
      );
      refuseBeyondQuota(quotas, row);
      return row?.added === true;
    },

    async findIdentity(
      call: Call,
      workspaceId: string,
      reference: IdentityReference,
    ): Promise<IdentityRow | undefined> {
      const [row] = await db.readOne(
        call,
        sql<IdentityRow[]>`
          select ${columns} from identities where identity_id = ${idOf(workspaceId, reference)}`,
      );
      return row;
    },

    /** With a search text, only identities whose externalId contains it, ignoring case. */
    listIdentities(
      call: Call,
      workspaceId: string,
      search: string | undefined,
      page: PageRequest,
    ): Promise<ScannedPage<IdentityRow>> {
      return listPage(db, call, workspaceId, search, page, {
        table: sql`identities`,
        id: sql`identity_id`,
        columns,
        condition: sql`deleted_at is null`,
        // The index includes it: a search reads the table only for matches.
        searched: sql`external_id`,
      });
    },

    /** Undefined if there is no such identity. */
    async updateIdentity(
      call: Call,
      workspaceId: string,
      reference: IdentityReference,
      changes: IdentityChanges,
      actor: Actor,
    ) {
      const event = updateFacts(sql`identity_id`);
      const reached = onlyRemoves(changes) ? sql`null::text` : reachedQuota(quotas, workspaceId, {});
      const [row] = await db.run(
        call,
        sql<(IdentityRow & QuotaCheck)[]>`
          with before as (
              select identities as before from identities
              where identity_id = ${idOf(workspaceId, reference)} and deleted_at is null for no key update),
            quota as (select ${reached} as reached from before),
            after as (
              update identities set ${assignments(changes)} from before, quota
              where identities.identity_id = (before).identity_id and reached is null returning identities as after),
            events as (${insertAuditEvents(actor, ["identity.update", event])})
          select reached, (after).* from quota left join after on true`,
      );
      refuseBeyondQuota(quotas, row);
      return row;
    },

    /**
     * The keys of the identity stay, without an identity; none of their rows changes. The row of the identity stays for a
     * while, without its content. False if there is no such identity.
     */
    async deleteIdentity(
      call: Call,
      workspaceId: string,
      reference: IdentityReference,
      actor: Actor,
    ): Promise<boolean> {
      const event = sql`
        select (before).workspace_id, (before).identity_id, audit_snapshot(before), null::json from before, deleted`;
      // Locked for update: a concurrent statement that gives this identity to a key holds a key share lock.
      const deleted = await db.run(
        call,
        sql`
          with before as (
              select identities as before from identities
              where identity_id = ${idOf(workspaceId, reference)} and deleted_at is null for update),
            deleted as (
              update identities set deleted_at = now(), external_id = '', meta = '{}', ratelimits = '[]' from before
              where identities.identity_id = (before).identity_id returning identities as deleted),
            events as (${insertAuditEvents(actor, ["identity.delete", event])})
          select from deleted`,
      );
      return deleted.length === 1;
    },
  };
}

/** Assigns only the changed columns. */
function assignments({ meta, ratelimits }: IdentityChanges): Fragment {
  return [
    meta !== undefined && sql`meta = ${jsonParameter(meta)}`,
    ratelimits !== undefined && sql`ratelimits = ${jsonParameter(ratelimits)}`,
  ].reduce<Fragment>((all, one) => (one ? sql`${all}, ${one}` : all), sql`updated_at = now()`);
}

/** Whether a change only removes data. No quota applies to such a change. */
function onlyRemoves({ meta = {}, ratelimits = [] }: IdentityChanges): boolean {
  return Object.keys(meta).length === 0 && ratelimits.length === 0;
}

/** The insertion of an identity, as part of a statement; `from` or `where` may follow. */
export function insertion(identity: NewIdentity): Fragment {
  const { identityId, workspaceId, externalId, meta, ratelimits } = identity;
  return sql`
    insert into identities (identity_id, workspace_id, external_id, meta, ratelimits, created_at, updated_at)
    select ${identityId}, ${workspaceId}, ${externalId}, ${jsonParameter(meta)}, ${jsonParameter(ratelimits)},
      now(), now()`;
}

/**
 * The id of the identity that a reference means, as a subquery. It finds only identities of the workspace that are not
 * deleted.
 */
export function idOf(workspaceId: string, { case: kind, value }: IdentityReference): Fragment {
  const where = sql`from identities where workspace_id = ${workspaceId} and deleted_at is null`;
  if (kind === "identityId") return sql`(select identity_id ${where} and identity_id = ${value})`;
  if (kind === "externalId") return sql`(select identity_id ${where} and external_id = ${value})`;
  // If one identity's externalId equals another's identityId, the identityId wins. Not with `or`: for that, the planner may
  // read all identities of the workspace.
  return sql`(
    select identity_id from (
      select identity_id, 1 as place ${where} and identity_id = ${value}
      union all
      select identity_id, 2 ${where} and external_id = ${value}) as found
    order by place limit 1)`;
}
