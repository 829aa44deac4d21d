import { createHash } from "node:crypto";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { succeed } from "../../support/calls.js";
import { createWorkspace, post } from "../../support/clients/http-requests.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";
import { findPartialChanges } from "../../support/integrity.js";

const minuteMs = 60_000;
/** More than two batches. */
const many = 1_200;
const sweepOptions = { sweepIntervalMs: 100, auditRetentionDays: "forever" } as const;
/** In every text that a tenant gives to the service here. */
const mark = "Zoë";

let app: TestApp;
/** Two replicas erase at the same time. */
let other: TestApp;
let sql: postgres.Sql;

beforeAll(async () => {
  app = await openTestApp(sweepOptions);
  other = await openTestApp({ ...sweepOptions, databaseUrl: app.databaseUrl });
  sql = openSql(app.databaseUrl, { max: 2, onnotice: () => {} });
});
afterAll(async () => {
  await sql.end();
  await other.close();
  await app.close();
});

const call = <T>(operation: string, key: string, body: object) => succeed<T>(app.httpUrl, operation, key, body);
const operate = <T>(operation: string, body: object) => call<T>(`workspaces.${operation}`, operatorKey, body);
const hashOf = (secret: string) => createHash("sha256").update(secret).digest("base64");

/** A workspace with something of every kind, all with the mark, and things that were deleted before. */
async function fill(): Promise<{ workspaceId: string; key: string; deletedKeyId: string }> {
  const { workspaceId, key } = await operate<{ workspaceId: string; key: string }>("createWorkspace", { name: mark });
  const { apiId } = await call<{ apiId: string }>("apis.createApi", key, { name: mark });
  const { apiId: deletedApiId } = await call<{ apiId: string }>("apis.createApi", key, { name: `${mark} old` });
  await call("permissions.createPermission", key, { name: mark, slug: "zoe", description: mark });
  await call("permissions.createRole", key, { name: mark, description: mark, permissions: ["zoe"] });
  await call("permissions.createRole", key, { name: `${mark} old`, permissions: ["zoe"] });
  await call("identities.createIdentity", key, { externalId: mark, meta: { name: mark } });
  await call("identities.createIdentity", key, { externalId: `${mark} old` });
  await call("ratelimit.setOverride", key, { namespace: mark, identifier: mark, limit: 5, duration: minuteMs });
  const settings = { name: mark, meta: { name: mark }, externalId: mark, roles: [mark], permissions: ["zoe"] };
  await call("keys.createKey", key, { ...settings, apiId, credits: { remaining: 5 } });
  await call("keys.createKey", key, { ...settings, apiId: deletedApiId });
  const { keyId: deletedKeyId } = await call<{ keyId: string }>("keys.createKey", key, settings);
  await call("keys.deleteKey", key, { keyId: deletedKeyId });
  // It has neither a name nor meta, but other texts.
  const ratelimits = [{ name: mark, limit: 5, duration: minuteMs, autoApply: true }];
  const { keyId: namelessKeyId } = await call<{ keyId: string }>("keys.createKey", key, {
    permissions: ["zoe"],
    prefix: "zoe",
    ratelimits,
  });
  await call("keys.deleteKey", key, { keyId: namelessKeyId });
  await call("identities.deleteIdentity", key, { externalId: `${mark} old` });
  await call("permissions.deleteRole", key, { role: `${mark} old` });
  for (let batch = 0; batch < many / 100; batch++) {
    const keys = Array.from({ length: 100 }, (_, index) => ({
      hash: hashOf(`${workspaceId} ${batch} ${index}`),
      name: `${mark} ${index}`,
    }));
    await call("keys.migrateKeys", key, { migrationId: mark, keys });
  }
  await call("apis.deleteApi", key, { apiId: deletedApiId });
  return { workspaceId, key, deletedKeyId };
}

const erasedAt = async (workspaceId: string) =>
  (await sql`select erased_at from workspaces where workspace_id = ${workspaceId}`)[0]?.["erased_at"] ?? null;

/** Every row of every table that contains the text. */
async function rowsWith(text: string): Promise<string[]> {
  const tables = await sql<{ name: string }[]>`
    select table_name as name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'`;
  const found = await Promise.all(
    tables.map(async ({ name }) => {
      const rows = await sql`select t::text as row from ${sql(name)} t where t::text like ${`%${text}%`}`;
      return rows.map(({ row }) => `${name}: ${row}`);
    }),
  );
  return found.flat();
}

describe("the erasure of a deleted workspace", () => {
  it("leaves no text of the tenant in any table, keeps the audit, and does not affect other workspaces", async () => {
    const neighbour = await createWorkspace(app.httpUrl);
    await call("keys.createKey", neighbour.key, { name: "neighbour", meta: { a: 1 }, externalId: "neighbour" });
    const { workspaceId, key, deletedKeyId } = await fill();
    await operate("disableWorkspace", { workspaceId, reason: "ACCOUNT_CLOSURE", note: mark });
    const events = async () =>
      [
        ...(await sql<Record<string, unknown>[]>`
          select event_id, type, actor, resource_id, request_id, at from audit_events
          where workspace_id = ${workspaceId} order by position`),
      ].map((row) => ({ ...row }));
    const before = await events();
    expect(before.length).toBeGreaterThan(many);
    await operate("deleteWorkspace", { workspaceId });

    // Not at once: a statement that was authorized before the deletion may still be running.
    await sql`select pg_sleep(0.5)`;
    expect(await erasedAt(workspaceId)).toBeNull();
    expect((await rowsWith(mark)).length).toBeGreaterThan(many);

    await app.advance(2 * minuteMs);
    await expect.poll(() => erasedAt(workspaceId), { timeout: 60_000 }).not.toBeNull();
    expect(await rowsWith(mark)).toEqual([]);
    expect(await rowsWith("zoe")).toEqual([]);

    // The events are still there, with the ids and settings that the service assigned.
    const after = await events();
    const ofCallers = (all: typeof before) => all.filter(({ actor }) => actor !== "service");
    expect(ofCallers(after).slice(0, -1)).toEqual(ofCallers(before));
    expect(after.at(-1)).toMatchObject({ type: "workspace.delete", actor: "operator", resource_id: workspaceId });
    const listed = await operate<{ type: string; before?: object; after?: object }[]>("listAuditEvents", {
      workspaceId,
      resourceId: deletedKeyId,
    });
    expect(listed.map(({ type }) => type)).toEqual(["key.delete", "key.create"]);
    const left = { enabled: true, scopes: [], expires: null, apiId: null, roles: [expect.stringMatching(/^role_/)] };
    expect(listed[0]?.before).toMatchObject(left);
    expect(listed[0]?.before).not.toHaveProperty("name");

    const live = await sql`select from keys where workspace_id = ${workspaceId} and deleted_at is null`;
    expect(live).toHaveLength(0);
    expect(await post(app.httpUrl, "/v2/keys.listKeys", key, {})).toMatchObject({ status: 401 });
    expect(await rowsWith("neighbour")).not.toEqual([]);
    expect(await call("keys.listKeys", neighbour.key, {})).toHaveLength(2);
    expect(await findPartialChanges(sql)).toEqual([]);
  });

  it("continues in another process if the first one ends, and keeps the keys refused meanwhile", async () => {
    // A replica that has not swept yet, and one that starts in the middle of the erasure.
    const database = await openTestApp({ auditRetentionDays: "forever", sweepIntervalMs: 10 * minuteMs });
    const own = openSql(database.databaseUrl, { max: 1, onnotice: () => {} });
    try {
      const home = await createWorkspace(database.httpUrl);
      const keys = Array.from({ length: 100 }, (_, index) => ({ hash: hashOf(`x ${index}`), name: mark }));
      await succeed(database.httpUrl, "keys.migrateKeys", home.key, { migrationId: mark, keys });
      await succeed(database.httpUrl, "workspaces.disableWorkspace", operatorKey, {
        workspaceId: home.workspaceId,
        reason: "ACCOUNT_CLOSURE",
      });
      await succeed(database.httpUrl, "workspaces.deleteWorkspace", operatorKey, { workspaceId: home.workspaceId });
      await database.advance(2 * minuteMs);
      // As after a crash between two batches: half of the keys are erased, and nothing says how far that has come.
      await own`
        update keys set deleted_at = now(), name = null, meta = null, migration_id = null where key_id in (
          select key_id from keys where workspace_id = ${home.workspaceId} order by key_id limit 50)`;
      expect(await post(database.httpUrl, "/v2/keys.listKeys", home.key, {})).toMatchObject({ status: 401 });
      const next = await openTestApp({ ...sweepOptions, databaseUrl: database.databaseUrl });
      try {
        expect(await post(next.httpUrl, "/v2/keys.listKeys", home.key, {})).toMatchObject({ status: 401 });
        const names = () => own`select from keys where workspace_id = ${home.workspaceId} and name is not null`;
        await expect.poll(names, { timeout: 20_000 }).toHaveLength(0);
        expect(await post(next.httpUrl, "/v2/keys.listKeys", home.key, {})).toMatchObject({ status: 401 });
      } finally {
        await next.close();
      }
    } finally {
      await own.end();
      await database.close();
    }
  });
});

describe("a root key that is created while its workspace is deleted", () => {
  it("exists before the deletion or not at all", async () => {
    const { workspaceId } = await createWorkspace(app.httpUrl);
    await operate("disableWorkspace", { workspaceId, reason: "ACCOUNT_CLOSURE" });
    const own = await sql.reserve();
    await own`begin`;
    await own`select from workspaces where workspace_id = ${workspaceId} for update`;
    await own`update workspaces set deleted_at = now() where workspace_id = ${workspaceId}`;
    const creating = post(app.httpUrl, "/v2/workspaces.createRootKey", operatorKey, { workspaceId });
    const waiting = () =>
      sql`select from pg_stat_activity where wait_event_type = 'Lock' and query like '%insert into keys%'`;
    await expect.poll(waiting, { timeout: 5_000 }).toHaveLength(1);
    await own`commit`;
    own.release();
    expect(await creating).toMatchObject({ status: 404 });
    expect(await sql`select from keys where workspace_id = ${workspaceId}`).toHaveLength(1);
  });
});
