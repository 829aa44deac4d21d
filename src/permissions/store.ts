import { insertAuditEvents } from "../audit/store.js";
import type { Call, IdempotencyRecord } from "../call/call.js";
import type { Actor } from "../call/context.js";
import { insertIdempotencyRecord } from "../idempotency/store.js";
import { maxPageBytes, type PageRequest } from "../pagination.js";
import { type QuotaCheck, type Quotas, reachedQuota, refuseBeyondQuota } from "../quotas/quotas.js";
import type { Database } from "../storage/postgres/database.js";
import { listPage, type ScannedPage } from "../storage/postgres/paging.js";
import { type Fragment, sql, textArrayParameter } from "../storage/postgres/sql.js";

/** A permission of a key or a role. All but the slug is null if the catalogue does not contain it. */
export interface PermissionRow {
  readonly slug: string;
  readonly permissionId: string | null;
  readonly name: string | null;
  readonly description: string | null;
}

/** A permission of the catalogue. */
export interface CataloguedPermission extends PermissionRow {
  readonly permissionId: string;
  readonly name: string;
}

/** A permission to be added to the catalogue. */
export type NewPermission = CataloguedPermission & { readonly workspaceId: string };

/** What became of the deletion of a permission. */
export type PermissionDeletion = "deleted" | "not found" | "in use";

/**
 * How many keys with a permission are read to find one that exists. All of them may belong to deleted APIs: then the
 * permission counts as in use until these keys are deleted.
 */
const maxHolders = 1_000;

export type PermissionsStore = ReturnType<typeof createPermissionsStore>;

export function createPermissionsStore(db: Database, quotas: Quotas) {
  return {
    /** False if the catalogue of the workspace already contains this slug. */
    async insertPermission(
      call: Call,
      permission: NewPermission,
      actor: Actor,
      record: IdempotencyRecord | undefined,
    ): Promise<boolean> {
      const { permissionId, workspaceId, slug, name, description } = permission;
      const event = sql`
        select (added).workspace_id, (added).permission_id, null::json, audit_snapshot(added) from added`;
      const [row] = await db.run(
        call,
        sql<(QuotaCheck & { added: boolean })[]>`
          with quota as (select ${reachedQuota(quotas, workspaceId, {})} as reached),
            added as (
              insert into permissions (permission_id, workspace_id, slug, name, description, created_at)
              select ${permissionId}, ${workspaceId}, ${slug}, ${name}, ${description}, now()
              from quota where reached is null
              on conflict (workspace_id, slug) do nothing returning permissions as added),
            events as (${insertAuditEvents(actor, ["permission.create", event])})
            ${insertIdempotencyRecord(record, sql`added`)}
          select reached, exists (select from added) as added from quota`,
      );
      refuseBeyondQuota(quotas, row);
      return row?.added === true;
    },

    /** @param reference its id or its slug */
    async findPermission(
      call: Call,
      workspaceId: string,
      reference: string,
    ): Promise<CataloguedPermission | undefined> {
      const [row] = await db.readOne(
        call,
        sql<CataloguedPermission[]>`
          select slug, permission_id, name, description from permissions
          where permission_id = ${permissionIdOf(workspaceId, reference)}`,
      );
      return row;
    },

    /** With a search text, only permissions whose slug contains it, ignoring case. */
    listPermissions(
      call: Call,
      workspaceId: string,
      search: string | undefined,
      page: PageRequest,
    ): Promise<ScannedPage<CataloguedPermission>> {
      return listPage(db, call, workspaceId, search, page, {
        table: sql`permissions`,
        id: sql`permission_id`,
        columns: sql`slug, permission_id, name, description`,
        condition: sql`true`,
        searched: sql`slug`,
      });
    },

    /**
     * Refused while a key or a role has the permission. A key or a role that gets it at the same time keeps it: no decision
     * depends on the catalogue.
     *
     * @param reference its id or its slug
     */
    async deletePermission(
      call: Call,
      workspaceId: string,
      reference: string,
      actor: Actor,
    ): Promise<PermissionDeletion> {
      const event = sql`
        select (before).workspace_id, (before).permission_id, audit_snapshot(before), null::json from before, deleted`;
      // Written as the indexes over permissions are.
      const hasPermission = sql`
        permissions_of_workspace(workspace_id, permissions) @> array[${workspaceId}::text || ' ' || (before).slug]
        and permissions <> '{}' and deleted_at is null`;
      const [row] = await db.run(
        call,
        sql<{ inUse: boolean }[]>`
          with before as (
              select permissions as before from permissions
              where permission_id = ${permissionIdOf(workspaceId, reference)} for update),
            used as materialized (
              select exists (select from roles where ${hasPermission}) or (
                select count(*) = ${maxHolders}
                  or bool_or((select apis.deleted_at from apis where apis.api_id = holders.api_id) is null) is true
                from (select api_id from keys where ${hasPermission} limit ${maxHolders}) as holders) as in_use
              from before),
            deleted as (
              delete from permissions using before, used
              where permissions.permission_id = (before).permission_id and not in_use returning permissions.permission_id),
            events as (${insertAuditEvents(actor, ["permission.delete", event])})
          select in_use from used left join deleted on true`,
      );
      if (row === undefined) return "not found";
      return row.inUse ? "in use" : "deleted";
    },

    /**
     * Describes permissions by the catalogue, in their order, until their texts exceed a page. Further ones are left out: a page
     * of roles ends before the role that has them.
     */
    describePermissions(
      call: Call,
      workspaceId: string,
      slugs: readonly string[],
      { withDescription } = { withDescription: true },
    ): Promise<readonly PermissionRow[]> {
      const description = withDescription ? sql`description` : sql`null::text`;
      // With `offset 0`, each slug is found by the index. A join would be planned for ten slugs, whatever their number, and
      // compare each of thousands with the whole catalogue.
      return db.run(
        call,
        sql<PermissionRow[]>`
          select slug, permission_id, name, description from (
            select granted.slug, position, permission_id, name, ${description} as description,
              sum(octet_length(name) + coalesce(octet_length(${description}), 0))
                over (order by position rows between unbounded preceding and 1 preceding) as bytes_before
            from unnest(${textArrayParameter(slugs)}) with ordinality as granted (slug, position)
              left join lateral (
                select * from permissions
                where workspace_id = ${workspaceId} and permissions.slug = granted.slug offset 0) as catalogued on true
          ) as described
          where bytes_before is null or bytes_before <= ${maxPageBytes}
          order by position`,
      );
    },
  };
}

/**
 * The id of the permission with this id or slug, as a subquery. No slug has the form of an id. Not with `or`: for that, the
 * planner may read all permissions of the workspace.
 */
function permissionIdOf(workspaceId: string, reference: string): Fragment {
  return sql`(
    select permission_id from permissions where workspace_id = ${workspaceId} and permission_id = ${reference}
    union all
    select permission_id from permissions where workspace_id = ${workspaceId} and slug = ${reference})`;
}
