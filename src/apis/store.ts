import { insertAuditEvents } from "../audit/store.js";
import type { Call, IdempotencyRecord } from "../call/call.js";
import type { Actor } from "../call/context.js";
import { insertIdempotencyRecord } from "../idempotency/store.js";
import type { PageRequest } from "../pagination.js";
import type { Quotas } from "../quotas/quotas.js";
import { type QuotaCheck, reachedQuota, refuseBeyondQuota } from "../quotas/quotas.js";
import type { Database } from "../storage/postgres/database.js";
import { pageOf } from "../storage/postgres/paging.js";
import { sql, textArrayParameter } from "../storage/postgres/sql.js";

/** A stored API. */
export interface ApiRow {
  readonly apiId: string;
  readonly name: string;
  readonly createdAt: Date;
}

/** An API to be stored. */
export type NewApi = Omit<ApiRow, "createdAt"> & { readonly workspaceId: string };

/** What became of a deletion. */
export type ApiDeletion = "deleted" | "not found" | "exceeds caller" | "of caller";

export type ApisStore = ReturnType<typeof createApisStore>;

export function createApisStore(db: Database, quotas: Quotas) {
  return {
    async insertApi(call: Call, api: NewApi, actor: Actor, record: IdempotencyRecord | undefined): Promise<void> {
      const { apiId, workspaceId, name } = api;
      const event = sql`select (added).workspace_id, (added).api_id, null::json, audit_snapshot(added) from added`;
      const [row] = await db.run(
        call,
        sql<QuotaCheck[]>`
          with quota as (select ${reachedQuota(quotas, workspaceId, {})} as reached),
            added as (
              insert into apis (api_id, workspace_id, name, created_at)
              select ${apiId}, ${workspaceId}, ${name}, now() from quota where reached is null
              returning apis as added),
            events as (${insertAuditEvents(actor, ["api.create", event])})
            ${insertIdempotencyRecord(record, sql`added`)}
          select reached from quota`,
      );
      refuseBeyondQuota(quotas, row);
    },

    async findApi(call: Call, workspaceId: string, apiId: string): Promise<ApiRow | undefined> {
      const [row] = await db.readOne(
        call,
        sql<ApiRow[]>`
          select api_id, name, created_at from apis
          where workspace_id = ${workspaceId} and api_id = ${apiId} and deleted_at is null`,
      );
      return row;
    },

    async listApis(call: Call, workspaceId: string, page: PageRequest): Promise<ApiRow[]> {
      // In the order of the index over the APIs of a workspace. See listKeys for the form of this condition.
      const all = sql`
        select api_id, name, created_at, workspace_id from apis
        where (workspace_id, api_id) > (${workspaceId}, ${page.after}) and workspace_id <= ${workspaceId}
          and deleted_at is null`;
      return db.run(call, pageOf<ApiRow>(all, sql`workspace_id, api_id`, page.limit));
    },

    /**
     * Deletes an API and, with it, all its keys: none of their rows changes. Refused for the API of the calling key, and for
     * one with keys whose scopes the calling key lacks.
     */
    async deleteApi(call: Call, workspaceId: string, apiId: string, actor: Actor): Promise<ApiDeletion> {
      const { keyId = null, scopes = [] } = actor.key ?? {};
      const event = sql`
        select (before).workspace_id, (before).api_id, audit_snapshot(before), null::json from before, deleted`;
      // Locked for update: a concurrent statement that creates or changes a key of this API holds a key share lock.
      const [row] = await db.run(
        call,
        sql<{ refusal: ApiDeletion | null }[]>`
          with before as (
              select apis as before from apis
              where workspace_id = ${workspaceId} and api_id = ${apiId} and deleted_at is null for update),
            checked as materialized (
              select case
                when exists (select from keys where key_id = ${keyId} and api_id = (before).api_id) then 'of caller'
                when has_keys_beyond((before).api_id, ${textArrayParameter(scopes)}) then 'exceeds caller'
              end as refusal from before),
            deleted as (
              update apis set deleted_at = now(), name = '' from before, checked
              where apis.api_id = (before).api_id and refusal is null returning apis.api_id),
            events as (${insertAuditEvents(actor, ["api.delete", event])})
          select refusal from checked left join deleted on true`,
      );
      return row === undefined ? "not found" : (row.refusal ?? "deleted");
    },
  };
}
