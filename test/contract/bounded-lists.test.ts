import type postgres from "postgres";
import { describe, expect } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import type { CallRequest } from "../support/clients/protocol-client.js";
import { allProtocols, openContract } from "./cases.js";
import type { Scene } from "./scene.js";

const contract = openContract(allProtocols, {}, { alwaysInTurn: true });

/** More rows than one page scans, and fewer than two pages scan. */
const many = 6_000;

/** Runs SQL in the service's database, because thousands of calls would take too long. */
async function inDatabase(statements: (sql: postgres.Sql) => Promise<unknown>): Promise<void> {
  const sql = openSql(contract.app.databaseUrl, { max: 1, onnotice: () => {} });
  await statements(sql).finally(() => sql.end());
}

/** Follows a list's cursors to the end; returns all rows and the number of rows of each page. */
async function walk<Name extends "listIdentities" | "listKeys" | "listAuditEvents" | "listPermissions" | "listRoles">(
  { page, home }: Scene,
  list: Name,
  request: CallRequest,
) {
  const rows: unknown[] = [];
  const sizes: number[] = [];
  for (let cursor: string | undefined; sizes.length < 10; ) {
    const { data, pagination } = await page(list, home.key, { ...request, ...(cursor && { cursor }) });
    rows.push(...data);
    sizes.push(data.length);
    expect(pagination?.hasMore).toBe(pagination?.cursor !== undefined);
    cursor = pagination?.cursor;
    if (cursor === undefined) break;
  }
  return { rows, sizes };
}

/** An id prefix that sorts after every id generated so far. */
const later = (prefix: string) => `${prefix}_7`;

describe("bounded list scans: a filter that matches few rows of many is paged, and pages may be empty", () => {
  contract.everyProtocol(
    "listIdentities by search finds a match after thousands of other rows, exactly once",
    async (scene) => {
      const { ok, home } = scene;
      const { identityId } = await ok("createIdentity", home.key, { externalId: "Needle, first" });
      await inDatabase(
        (sql) => sql`
        insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)
        select ${later("id")} || lpad(n::text, 6, '0') || right(${identityId}, 19), ${home.workspaceId},
          case n when ${many} then 'last NEEDLE' else 'user_' || n end, '{}', now(), now()
        from generate_series(1, ${many}) as n`,
      );
      const { rows, sizes } = await walk(scene, "listIdentities", { search: "needle" });
      expect(rows).toMatchObject([{ externalId: "Needle, first" }, { externalId: "last NEEDLE" }]);
      expect(sizes).toEqual([1, 1]);
      expect(await walk(scene, "listIdentities", { search: "nobody" })).toEqual({ rows: [], sizes: [0, 0] });
      // Pages are full where many rows match.
      const page = await scene.page("listIdentities", home.key, { search: "USER_1", limit: 7 });
      expect(page).toMatchObject({ data: Array(7).fill({}), pagination: { hasMore: true } });
    },
  );

  contract.everyProtocol("listKeys by enabled and by externalId", async (scene) => {
    const { ok, home } = scene;
    const { keyId } = await ok("createKey", home.key, { externalId: "user_1", name: "first" });
    await inDatabase(
      (sql) => sql`
        insert into keys (key_id, workspace_id, hash, start, name, enabled, permissions, identity_id, created_at, updated_at)
        select ${later("key")} || lpad(n::text, 6, '0') || right(${keyId}, 19), ${home.workspaceId},
          sha256((${keyId} || n)::bytea), 'lk_test', case n when ${many} then 'last' end, n = ${many}, '{}',
          (select identity_id from keys where key_id = ${keyId}), now(), now()
        from generate_series(1, ${many}) as n`,
    );
    for (const filter of [{ enabled: true, externalId: "user_1" }, { enabled: true }]) {
      const { rows } = await walk(scene, "listKeys", filter);
      expect(rows.slice(-2)).toMatchObject([{ name: "first" }, { name: "last" }]);
      expect(rows).toHaveLength(filter.externalId ? 2 : 3);
    }
    const disabled = await scene.page("listKeys", home.key, { enabled: false, externalId: "user_1", limit: 5 });
    expect(disabled).toMatchObject({ data: Array(5).fill({ enabled: false }), pagination: { hasMore: true } });
  });

  contract.everyProtocol("listKeys by apiId, of which most keys belong to another API", async (scene) => {
    const { ok, home } = scene;
    const { apiId } = await ok("createApi", home.key, { name: "few" });
    const { apiId: others } = await ok("createApi", home.key, { name: "many" });
    const { keyId } = await ok("createKey", home.key, { apiId, name: "first" });
    await inDatabase(
      (sql) => sql`
        insert into keys (key_id, workspace_id, hash, start, name, enabled, permissions, api_id, created_at, updated_at)
        select ${later("key")} || lpad(n::text, 6, '0') || right(${keyId}, 19), ${home.workspaceId},
          sha256((${keyId} || n)::bytea), 'lk_test', case n when ${many} then 'last' end, true, '{}',
          case n when ${many} then ${apiId} else ${others} end, now(), now()
        from generate_series(1, ${many}) as n`,
    );
    expect((await walk(scene, "listKeys", { apiId })).rows).toMatchObject([{ name: "first" }, { name: "last" }]);
    const { rows } = await walk(scene, "listKeys", { apiId, enabled: false });
    expect(rows).toEqual([]);
    const page = await scene.page("listKeys", home.key, { apiId: others, limit: 5 });
    expect(page).toMatchObject({ data: Array(5).fill({ apiId: others }), pagination: { hasMore: true } });
  });

  contract.everyProtocol("listPermissions and listRoles by search", async (scene) => {
    const { ok, home } = scene;
    const { permissionId } = await ok("createPermission", home.key, { name: "p", slug: "needle.first" });
    const { roleId } = await ok("createRole", home.key, { name: "Needle, first" });
    await inDatabase(async (sql) => {
      await sql`
        insert into permissions (permission_id, workspace_id, slug, name, created_at)
        select ${later("perm")} || lpad(n::text, 6, '0') || right(${permissionId}, 19), ${home.workspaceId},
          case n when ${many} then 'last.NEEDLE' else 'documents.read_' || n end, 'p', now()
        from generate_series(1, ${many}) as n`;
      await sql`
        insert into roles (role_id, workspace_id, name, permissions, created_at)
        select ${later("role")} || lpad(n::text, 6, '0') || right(${roleId}, 19), ${home.workspaceId},
          case n when ${many} then 'last NEEDLE' else 'role ' || n end, '{}', now()
        from generate_series(1, ${many}) as n`;
    });
    const permissions = await walk(scene, "listPermissions", { search: "Needle" });
    expect(permissions).toMatchObject({ rows: [{ slug: "needle.first" }, { slug: "last.NEEDLE" }], sizes: [1, 1] });
    const roles = await walk(scene, "listRoles", { search: "needle" });
    expect(roles).toMatchObject({ rows: [{ name: "Needle, first" }, { name: "last NEEDLE" }], sizes: [1, 1] });
    for (const list of ["listPermissions", "listRoles"] as const) {
      expect(await walk(scene, list, { search: "nobody" })).toEqual({ rows: [], sizes: [0, 0] });
    }
  });

  contract.everyProtocol("listAuditEvents by type and time, newest first", async (scene) => {
    const { home } = scene;
    await inDatabase(
      (sql) => sql`
        insert into audit_events (event_id, workspace_id, type, actor, resource_id, request_id, at)
        select 'evt_7' || lpad(n::text, 6, '0') || right(${home.keyId}, 19), ${home.workspaceId}, 'key.update', 'operator',
          ${home.keyId}, 'req_' || n, now() from generate_series(1, ${many}) as n`,
    );
    const created = await walk(scene, "listAuditEvents", { type: "key.create" });
    expect(created.rows).toMatchObject([{ type: "key.create", resourceId: home.keyId }]);
    expect(created.sizes).toEqual([0, 1]);
    expect((await walk(scene, "listAuditEvents", { until: 1 })).rows).toEqual([]);
  });
});
