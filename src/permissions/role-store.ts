import { insertAuditEvents, updateFacts } from "../audit/store.js";
import type { Call, IdempotencyRecord } from "../call/call.js";
import type { Actor } from "../call/context.js";
import { insertIdempotencyRecord } from "../idempotency/store.js";
import type { PageRequest } from "../pagination.js";
import { type QuotaCheck, type Quotas, reachedQuota, refuseBeyondQuota } from "../quotas/quotas.js";
import type { Database } from "../storage/postgres/database.js";
import { listPage, type ScannedPage } from "../storage/postgres/paging.js";
import { type Fragment, sql, textArrayParameter } from "../storage/postgres/sql.js";
import type { PermissionRow, PermissionsStore } from "./store.js";

/** A stored role, with descriptions of its permissions. */
export interface RoleRow {
  readonly roleId: string;
  readonly name: string;
  readonly description: string | null;
  readonly permissions: readonly PermissionRow[];
}

/** A stored role, with the slugs of its permissions. */
interface StoredRole extends Omit<RoleRow, "permissions"> {
  readonly permissions: readonly string[];
}

/** A role to be stored. */
export interface NewRole extends StoredRole {
  readonly workspaceId: string;
}

export type RoleStore = ReturnType<typeof createRoleStore>;

/** @param catalogue describes the permissions of roles */
export function createRoleStore(db: Database, quotas: Quotas, catalogue: PermissionsStore) {
  /**
   * Describes the permissions of roles. Each permission is read once, however many of the roles have it: the texts of all
   * permissions of all roles of a page would be several times as large as the page.
   */
  async function describeRoles(
    call: Call,
    workspaceId: string,
    roles: readonly StoredRole[],
    options: { readonly withDescription: boolean },
  ): Promise<RoleRow[]> {
    const slugs = [...new Set(roles.flatMap(({ permissions }) => permissions))];
    const described = slugs.length > 0 ? await catalogue.describePermissions(call, workspaceId, slugs, options) : [];
    const bySlug = new Map(described.map((permission) => [permission.slug, permission]));
    const describe = (slug: string) => bySlug.get(slug) ?? { slug, permissionId: null, name: null, description: null };
    return roles.map((role) => ({ ...role, permissions: role.permissions.map(describe) }));
  }

  return {
    /** False if the workspace already has a role with this name. */
    async insertRole(call: Call, role: NewRole, actor: Actor, record: IdempotencyRecord | undefined): Promise<boolean> {
      const { roleId, workspaceId, name, description, permissions } = role;
      const event = sql`select (added).workspace_id, (added).role_id, null::json, audit_snapshot(added) from added`;
      const [row] = await db.run(
        call,
        sql<(QuotaCheck & { added: boolean })[]>`
          with quota as (select ${reachedQuota(quotas, workspaceId, {})} as reached),
            added as (
              insert into roles (role_id, workspace_id, name, description, permissions, created_at)
              select ${roleId}, ${workspaceId}, ${name}, ${description}, ${textArrayParameter(permissions)}, now()
              from quota where reached is null
              on conflict (workspace_id, name) where deleted_at is null do nothing returning roles as added),
            events as (${insertAuditEvents(actor, ["role.create", event])})
            ${insertIdempotencyRecord(record, sql`added`)}
          select reached, exists (select from added) as added from quota`,
      );
      refuseBeyondQuota(quotas, row);
      return row?.added === true;
    },

    /** @param reference its id or its name */
    async findRole(call: Call, workspaceId: string, reference: string): Promise<RoleRow | undefined> {
      const found = await db.readOne(
        call,
        sql<StoredRole[]>`
          select ${roleColumns} from roles where role_id = ${roleIdOf(workspaceId, reference)}`,
      );
      const [role] = await describeRoles(call, workspaceId, found, { withDescription: true });
      return role;
    },

    /**
     * The roles with these names, in their order. Their permissions lack their descriptions: with those of 20 roles, a
     * response could exceed the message limit of gRPC clients.
     */
    async findRoles(call: Call, workspaceId: string, names: readonly string[]): Promise<RoleRow[]> {
      // With `offset 0`, each name is found by the index. With `name = any`, the planner may read all roles of the workspace.
      const found = await db.run(
        call,
        sql<StoredRole[]>`
          select ${roleColumns} from (select distinct given from unnest(${textArrayParameter(names)}) as given) as names
            cross join lateral (
              select ${roleColumns} from roles
              where workspace_id = ${workspaceId} and name = given and deleted_at is null offset 0) as found
          order by name`,
      );
      return describeRoles(call, workspaceId, found, { withDescription: false });
    },

    /** With a search text, only roles whose name contains it, ignoring case. */
    async listRoles(
      call: Call,
      workspaceId: string,
      search: string | undefined,
      page: PageRequest,
    ): Promise<ScannedPage<RoleRow>> {
      const found = await listPage<StoredRole>(db, call, workspaceId, search, page, {
        table: sql`roles`,
        id: sql`role_id`,
        columns: roleColumns,
        condition: sql`deleted_at is null`,
        searched: sql`name`,
      });
      return { ...found, rows: await describeRoles(call, workspaceId, found.rows, { withDescription: true }) };
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
      const event = updateFacts(sql`role_id`);
      const given = textArrayParameter(permissions);
      // No quota applies to a change that only removes permissions: it must be possible at any time. It can be repeated
      // only as often as there are permissions.
      const onlyRemoves = sql`(
        (before).permissions = ${given}
        or (before).permissions @> ${given} and cardinality((before).permissions) > cardinality(${given}))`;
      const [row] = await db.run(
        call,
        sql<(QuotaCheck & { changed: boolean })[]>`
          with before as (
              select roles as before from roles
              where role_id = ${roleIdOf(workspaceId, reference)} and deleted_at is null for no key update),
            quota as (
              select case when not ${onlyRemoves} then ${reachedQuota(quotas, workspaceId, {})} end as reached
              from before),
            after as (
              update roles set permissions = ${given} from before, quota
              where roles.role_id = (before).role_id and reached is null returning roles as after),
            events as (${insertAuditEvents(actor, ["role.update", event])})
          select reached, exists (select from after) as changed from quota`,
      );
      refuseBeyondQuota(quotas, row);
      return row?.changed === true;
    },

    /**
     * The keys with the role stay; none of their rows changes. False if there is no such role.
     *
     * @param reference its id or its name
     */
    async deleteRole(call: Call, workspaceId: string, reference: string, actor: Actor): Promise<boolean> {
      const event = sql`
        select (before).workspace_id, (before).role_id, audit_snapshot(before), null::json from before, deleted`;
      // Locked for update: a concurrent statement that gives this role to a key holds a key share lock.
      const deleted = await db.run(
        call,
        sql`
          with before as (
              select roles as before from roles
              where role_id = ${roleIdOf(workspaceId, reference)} and deleted_at is null for update),
            deleted as (
              update roles set deleted_at = now(), name = '', description = null, permissions = '{}' from before
              where roles.role_id = (before).role_id returning roles.role_id),
            events as (${insertAuditEvents(actor, ["role.delete", event])})
          select from deleted`,
      );
      return deleted.length === 1;
    },
  };
}

/** The columns of a StoredRole. */
const roleColumns = sql`role_id, name, description, permissions`;

/**
 * The id of the role with this id or name, as a subquery. No name has the form of an id. Not with `or`: for that, the planner
 * may read all roles of the workspace.
 */
function roleIdOf(workspaceId: string, reference: string): Fragment {
  return sql`(
    select role_id from roles where workspace_id = ${workspaceId} and deleted_at is null and role_id = ${reference}
    union all
    select role_id from roles where workspace_id = ${workspaceId} and deleted_at is null and name = ${reference})`;
}
