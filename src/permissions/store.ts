import { hasChanged, insertAuditEvents } from "../audit/store.js";
import type { Call, IdempotencyRecord } from "../call/call.js";
import type { Actor } from "../call/context.js";
import { insertIdempotencyRecord } from "../idempotency/store.js";
import type { PageRequest } from "../pagination.js";
import type { Quotas } from "../quotas/quotas.js";
import { type QuotaCheck, reachedQuota, refuseBeyondQuota } from "../quotas/quotas.js";
import { type Fragment, type Statement, textArrayParameter } from "../storage/postgres/connection.js";
import type { Database } from "../storage/postgres/database.js";
import { pageOf, readScannedPage, type ScannedPage, scannedPageOf } from "../storage/postgres/paging.js";

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

/** A stored role, with descriptions of its permissions. */
export interface RoleRow {
  readonly roleId: string;
  readonly name: string;
  readonly description: string | null;
  readonly permissions: readonly PermissionRow[];
}

/** A role to be stored. */
export interface NewRole extends Omit<RoleRow, "permissions"> {
  readonly workspaceId: string;
  readonly permissions: readonly string[];
}

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
      const [row] = await db.run(call, (sql) => {
        const event = sql`
          select (added).workspace_id, (added).permission_id, null::json, audit_snapshot(added) from added`;
        return sql<(QuotaCheck & { added: boolean })[]>`
          with quota as (select ${reachedQuota(sql, quotas, workspaceId, {})} as reached),
            added as (
              insert into permissions (permission_id, workspace_id, slug, name, description, created_at)
              select ${permissionId}, ${workspaceId}, ${slug}, ${name}, ${description}, now()
              from quota where reached is null
              on conflict (workspace_id, slug) do nothing returning permissions as added),
            events as (${insertAuditEvents(sql, actor, ["permission.create", event])})
            ${insertIdempotencyRecord(sql, record, sql`added`)}
          select reached, exists (select from added) as added from quota`;
      });
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
        (sql) => sql<CataloguedPermission[]>`
        select slug, permission_id, name, description from permissions
        where permission_id = ${permissionIdOf(sql, workspaceId, reference)}`,
      );
      return row;
    },

    /** With a search text, only permissions whose slug contains it, ignoring case. */
    async listPermissions(
      call: Call,
      workspaceId: string,
      search: string | undefined,
      page: PageRequest,
    ): Promise<ScannedPage<CataloguedPermission>> {
      const columns = (sql: Statement) => sql`slug, permission_id, name, description`;
      // In the order of the index over the permissions of a workspace. See listKeys for the form of this condition.
      const after = (sql: Statement) => sql`
        (workspace_id, permission_id) > (${workspaceId}, ${page.after}) and workspace_id <= ${workspaceId}`;
      const order = (sql: Statement) => sql`workspace_id, permission_id`;
      if (search === undefined) {
        const rows = await db.run(call, (sql) => {
          const all = sql`select ${columns(sql)}, workspace_id from permissions where ${after(sql)}`;
          return pageOf<CataloguedPermission>(sql, all, order(sql), page.limit);
        });
        return { rows, scannedTo: undefined };
      }
      const rows = await db.run(call, (sql) =>
        scannedPageOf<CataloguedPermission>(sql, {
          rows: sql`select permission_id, slug from permissions where ${after(sql)} order by ${order(sql)}`,
          column: sql`permission_id`,
          direction: sql`asc`,
          filter: contains(sql, sql`slug`, search),
          limit: page.limit,
          whole: sql`select ${columns(sql)} from permissions where permission_id`,
          id: (permissionId) => permissionId,
        }),
      );
      return readScannedPage(rows);
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
      const [row] = await db.run(call, (sql) => {
        const event = sql`
          select (before).workspace_id, (before).permission_id, audit_snapshot(before), null::json from before, deleted`;
        // Written as the indexes over permissions are.
        const hasPermission = sql`
          permissions_of_workspace(workspace_id, permissions) @> array[${workspaceId}::text || ' ' || (before).slug]
          and permissions <> '{}' and deleted_at is null`;
        return sql<{ inUse: boolean }[]>`
          with before as (
              select permissions as before from permissions
              where permission_id = ${permissionIdOf(sql, workspaceId, reference)} for update),
            used as materialized (
              select exists (select from roles where ${hasPermission}) or (
                select count(*) = ${maxHolders}
                  or bool_or((select apis.deleted_at from apis where apis.api_id = holders.api_id) is null) is true
                from (select api_id from keys where ${hasPermission} limit ${maxHolders}) as holders) as in_use
              from before),
            deleted as (
              delete from permissions using before, used
              where permissions.permission_id = (before).permission_id and not in_use returning permissions.permission_id),
            events as (${insertAuditEvents(sql, actor, ["permission.delete", event])})
          select in_use from used left join deleted on true`;
      });
      if (row === undefined) return "not found";
      return row.inUse ? "in use" : "deleted";
    },

    /** Describes these permissions by the catalogue, in their order. */
    async describePermissions(call: Call, workspaceId: string, slugs: readonly string[]): Promise<PermissionRow[]> {
      return db.run(
        call,
        (sql) => sql<PermissionRow[]>`
        select granted.slug, permission_id, name, description
        from unnest(${textArrayParameter(sql, slugs)}) with ordinality as granted (slug, position)
          left join permissions on workspace_id = ${workspaceId} and permissions.slug = granted.slug
        order by granted.position`,
      );
    },

    /** False if the workspace already has a role with this name. */
    async insertRole(call: Call, role: NewRole, actor: Actor, record: IdempotencyRecord | undefined): Promise<boolean> {
      const { roleId, workspaceId, name, description, permissions } = role;
      const [row] = await db.run(call, (sql) => {
        const event = sql`select (added).workspace_id, (added).role_id, null::json, audit_snapshot(added) from added`;
        return sql<(QuotaCheck & { added: boolean })[]>`
          with quota as (select ${reachedQuota(sql, quotas, workspaceId, {})} as reached),
            added as (
              insert into roles (role_id, workspace_id, name, description, permissions, created_at)
              select ${roleId}, ${workspaceId}, ${name}, ${description}, ${textArrayParameter(sql, permissions)}, now()
              from quota where reached is null
              on conflict (workspace_id, name) where deleted_at is null do nothing returning roles as added),
            events as (${insertAuditEvents(sql, actor, ["role.create", event])})
            ${insertIdempotencyRecord(sql, record, sql`added`)}
          select reached, exists (select from added) as added from quota`;
      });
      refuseBeyondQuota(quotas, row);
      return row?.added === true;
    },

    /** @param reference its id or its name */
    async findRole(call: Call, workspaceId: string, reference: string): Promise<RoleRow | undefined> {
      const [row] = await db.readOne(
        call,
        (sql) => sql<RoleRow[]>`
        select ${roleColumns(sql)} from roles where role_id = ${roleIdOf(sql, workspaceId, reference)}`,
      );
      return row;
    },

    /** The roles with these names, in their order. */
    async findRoles(call: Call, workspaceId: string, names: readonly string[]): Promise<RoleRow[]> {
      return db.run(
        call,
        (sql) => sql<RoleRow[]>`
        select ${roleColumns(sql)} from roles
        where workspace_id = ${workspaceId} and name = any (${textArrayParameter(sql, names)}) and deleted_at is null
        order by name`,
      );
    },

    /** With a search text, only roles whose name contains it, ignoring case. */
    async listRoles(
      call: Call,
      workspaceId: string,
      search: string | undefined,
      page: PageRequest,
    ): Promise<ScannedPage<RoleRow>> {
      // In the order of the index over the roles of a workspace. See listKeys for the form of this condition.
      const after = (sql: Statement) => sql`
        (workspace_id, role_id) > (${workspaceId}, ${page.after}) and workspace_id <= ${workspaceId} and deleted_at is null`;
      const order = (sql: Statement) => sql`workspace_id, role_id`;
      if (search === undefined) {
        const rows = await db.run(call, (sql) => {
          const all = sql`select ${roleColumns(sql)}, workspace_id from roles where ${after(sql)}`;
          return pageOf<RoleRow>(sql, all, order(sql), page.limit);
        });
        return { rows, scannedTo: undefined };
      }
      const rows = await db.run(call, (sql) =>
        scannedPageOf<RoleRow>(sql, {
          rows: sql`select role_id, name from roles where ${after(sql)} order by ${order(sql)}`,
          column: sql`role_id`,
          direction: sql`asc`,
          filter: contains(sql, sql`name`, search),
          limit: page.limit,
          whole: sql`select ${roleColumns(sql)} from roles where role_id`,
          id: (roleId) => roleId,
        }),
      );
      return readScannedPage(rows);
    },

    /**
     * Replaces the permissions of a role. None of the keys with this role changes. False if there is no such role.
     *
     * @param reference its id or its name
     */
    async setRolePermissions(
      call: Call,
      workspaceId: string,
      reference: string,
      permissions: readonly string[],
      actor: Actor,
    ): Promise<boolean> {
      const [row] = await db.run(call, (sql) => {
        const event = sql`
          select (a.after).workspace_id, (a.after).role_id, audit_snapshot(b.before), audit_snapshot(a.after)
          from before b, after a
          where ${hasChanged(sql)}`;
        const given = textArrayParameter(sql, permissions);
        // No quota applies to a change that only removes permissions: it must be possible at any time. It can be repeated
        // only as often as there are permissions.
        const onlyRemoves = sql`(
          (before).permissions = ${given}
          or (before).permissions @> ${given} and cardinality((before).permissions) > cardinality(${given}))`;
        return sql<(QuotaCheck & { changed: boolean })[]>`
          with before as (
              select roles as before from roles
              where role_id = ${roleIdOf(sql, workspaceId, reference)} and deleted_at is null for no key update),
            quota as (
              select case when not ${onlyRemoves} then ${reachedQuota(sql, quotas, workspaceId, {})} end as reached
              from before),
            after as (
              update roles set permissions = ${given} from before, quota
              where roles.role_id = (before).role_id and reached is null returning roles as after),
            events as (${insertAuditEvents(sql, actor, ["role.update", event])})
          select reached, exists (select from after) as changed from quota`;
      });
      refuseBeyondQuota(quotas, row);
      return row?.changed === true;
    },

    /**
     * The keys with the role stay; none of their rows changes. False if there is no such role.
     *
     * @param reference its id or its name
     */
    async deleteRole(call: Call, workspaceId: string, reference: string, actor: Actor): Promise<boolean> {
      const deleted = await db.run(call, (sql) => {
        const event = sql`
          select (before).workspace_id, (before).role_id, audit_snapshot(before), null::json from before, deleted`;
        // Locked for update: a concurrent statement that gives this role to a key holds a key share lock.
        return sql`
          with before as (
              select roles as before from roles
              where role_id = ${roleIdOf(sql, workspaceId, reference)} and deleted_at is null for update),
            deleted as (
              update roles set deleted_at = now(), name = '', description = null, permissions = '{}' from before
              where roles.role_id = (before).role_id returning roles.role_id),
            events as (${insertAuditEvents(sql, actor, ["role.delete", event])})
          select from deleted`;
      });
      return deleted.length === 1;
    },
  };
}

/** The columns of a RoleRow. */
function roleColumns(sql: Statement): Fragment {
  return sql`
    role_id, name, description, (
      select coalesce(json_agg(json_build_object('slug', granted.slug, 'permissionId', described.permission_id,
        'name', described.name, 'description', described.description) order by granted.position), '[]')
      from unnest(roles.permissions) with ordinality as granted (slug, position)
        left join permissions as described
          on described.workspace_id = roles.workspace_id and described.slug = granted.slug) as permissions`;
}

/** The id of the role with this id or name, as a subquery. No name has the form of an id. */
function roleIdOf(sql: Statement, workspaceId: string, reference: string): Fragment {
  return sql`(
    select role_id from roles
    where workspace_id = ${workspaceId} and deleted_at is null and (role_id = ${reference} or name = ${reference}))`;
}

/** The id of the permission with this id or slug, as a subquery. No slug has the form of an id. */
function permissionIdOf(sql: Statement, workspaceId: string, reference: string): Fragment {
  return sql`(
    select permission_id from permissions
    where workspace_id = ${workspaceId} and (permission_id = ${reference} or slug = ${reference}))`;
}

/** The condition that a column contains a text, ignoring case. As a subquery, the text is folded once for all rows. */
function contains(sql: Statement, column: Fragment, text: string): Fragment {
  return sql`strpos(case_folded(${column}), (select case_folded(${text}))) > 0`;
}
