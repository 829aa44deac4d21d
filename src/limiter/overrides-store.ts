import { insertAuditEvents, updateFacts } from "../audit/store.js";
import type { Call } from "../call/call.js";
import type { Actor } from "../call/context.js";
import { tooManyOverrides } from "../errors.js";
import { mintId } from "../ids.js";
import type { PageRequest } from "../pagination.js";
import { type QuotaCheck, type Quotas, reachedQuota, refuseBeyondQuota } from "../quotas/quotas.js";
import type { InSnapshot } from "../storage/postgres/connection.js";
import type { Database } from "../storage/postgres/database.js";
import { pageOf } from "../storage/postgres/paging.js";
import { type Fragment, sql } from "../storage/postgres/sql.js";
import type { Override } from "./override-set.js";

/** Which override: a namespace has at most one for an identifier. */
export interface OverrideReference {
  readonly workspaceId: string;
  readonly namespace: string;
  readonly identifier: string;
}

/** A stored override. */
export interface OverrideRow extends Override {
  readonly namespace: string;
}

/** How many overrides a namespace may have. All of them are read and cached together. */
const maxOverrides = 1_000;

/** How many of them may have a `*`. Each use of a limit is compared with them one by one. */
const maxPatterns = 100;

export type OverridesStore = ReturnType<typeof createOverridesStore>;

export function createOverridesStore(db: Database, quotas: Quotas) {
  const columns = sql`override_id, namespace, identifier, "limit", duration::float8 as duration`;
  const matching = ({ workspaceId, namespace, identifier }: OverrideReference) =>
    sql`workspace_id = ${workspaceId} and namespace = ${namespace} and identifier = ${identifier}`;

  return {
    /**
     * Sets an override, and replaces one with the same identifier. Returns its id. Undefined if another call has set it for
     * the first time meanwhile; then nothing is changed. Throws if the namespace has too many overrides. Concurrent
     * statements do not see each other's rows, so each of them can exceed that maximum by its row.
     */
    async setOverride(
      call: Call,
      reference: OverrideReference,
      { limit, duration }: Pick<Override, "limit" | "duration">,
      actor: Actor,
    ): Promise<string | undefined> {
      const { workspaceId, namespace, identifier } = reference;
      const creation = sql`
        select (after).workspace_id, (after).override_id, null::json, audit_snapshot(after) from inserted`;
      const update = updateFacts(sql`override_id`);
      const [row] = await db.run(
        call,
        sql<(QuotaCheck & { full: "overrides" | "patterns" | null; overrideId: string | null })[]>`
          with before as (
              select rate_limit_overrides as before from rate_limit_overrides
              where ${matching(reference)} for no key update),
            quota as (select ${reachedQuota(quotas, workspaceId, {})} as reached),
            space as (select ${reachedMaximum(reference)} as full),
            after as (
              update rate_limit_overrides set "limit" = ${limit}, duration = ${duration} from before, quota
              where rate_limit_overrides.override_id = (before).override_id and reached is null
              returning rate_limit_overrides as after),
            inserted as (
              insert into rate_limit_overrides
                (override_id, workspace_id, namespace, identifier, "limit", duration, created_at)
              select ${mintId("ovr")}, ${workspaceId}, ${namespace}, ${identifier}, ${limit}::integer, ${duration}::bigint,
                now()
              from quota, space where reached is null and "full" is null and not exists (select from before)
              on conflict (workspace_id, namespace, identifier) do nothing
              returning rate_limit_overrides as after),
            events as (${insertAuditEvents(actor, ["override.create", creation], ["override.update", update])})
          select reached, "full",
            coalesce((select (after).override_id from after), (select (after).override_id from inserted)) as override_id
          from quota, space`,
      );
      refuseBeyondQuota(quotas, row);
      if (row?.overrideId) return row.overrideId;
      if (row?.full) throw tooManyOverrides(row.full, row.full === "patterns" ? maxPatterns : maxOverrides);
      return undefined;
    },

    async findOverride(call: Call, reference: OverrideReference): Promise<OverrideRow | undefined> {
      const [row] = await db.readOne(
        call,
        sql<OverrideRow[]>`select ${columns} from rate_limit_overrides where ${matching(reference)}`,
      );
      return row;
    },

    async listOverrides(
      call: Call,
      workspaceId: string,
      namespace: string,
      page: PageRequest,
    ): Promise<readonly OverrideRow[]> {
      const rows = sql`
        select ${columns} from rate_limit_overrides
        where workspace_id = ${workspaceId} and namespace = ${namespace} and override_id > ${page.after}`;
      return db.run(call, pageOf<OverrideRow>(rows, sql`override_id`, page.limit));
    },

    /** False if there is no such override. */
    async deleteOverride(call: Call, reference: OverrideReference, actor: Actor): Promise<boolean> {
      const event = sql`
        select (deleted).workspace_id, (deleted).override_id, audit_snapshot(deleted), null::json from deleted`;
      const deleted = await db.run(
        call,
        sql`
          with deleted as (
              delete from rate_limit_overrides where ${matching(reference)}
              returning rate_limit_overrides as deleted),
            events as (${insertAuditEvents(actor, ["override.delete", event])})
          select from deleted`,
      );
      return deleted.length === 1;
    },

    /** One statement has one snapshot: the overrides include every change of the snapshot. */
    async readOverrides(
      workspaceId: string,
      namespace: string,
      call?: Call,
    ): Promise<InSnapshot<{ overrides: readonly Override[] }>> {
      const rows = await db.readShared(
        call,
        sql<InSnapshot<Override | { overrideId: null }>[]>`
          select override_id, identifier, "limit", duration::float8 as duration, primary_snapshot() as snapshot
          from (select) as one left join (${ofNamespace(workspaceId, namespace)}) as overrides on true
          order by override_id`,
      );
      const [first] = rows;
      if (first === undefined) throw new Error("a left join returned no row");
      const overrides = rows.flatMap((row) => {
        if (row.overrideId === null) return [];
        const { overrideId, identifier, limit, duration } = row;
        return [{ overrideId, identifier, limit, duration }];
      });
      return { overrides, snapshot: first.snapshot };
    },
  };
}

/** An SQL expression: which maximum an additional override would exceed, or null. A replaced one is not additional. */
function reachedMaximum({ workspaceId, namespace, identifier }: OverrideReference): Fragment {
  const isPattern = identifier.includes("*");
  return sql`(
    select case when exists (select from before) then null
      when count(*) >= ${maxOverrides} then 'overrides'
      when ${isPattern}::boolean and count(*) filter (where strpos(identifier, '*') > 0) >= ${maxPatterns} then 'patterns' end
    from (${ofNamespace(workspaceId, namespace)}) as overrides)`;
}

/**
 * The overrides of a namespace. The planner multiplies how common the workspace and the namespace are, and would read the
 * whole table if both are common. With a limit whose value it does not know, it prefers the order of the index.
 */
function ofNamespace(workspaceId: string, namespace: string): Fragment {
  return sql`
    select * from rate_limit_overrides where workspace_id = ${workspaceId} and namespace = ${namespace}
    order by override_id limit (select null::integer)`;
}
