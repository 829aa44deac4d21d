import { createHash } from "node:crypto";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { allEvents, succeed } from "../../support/calls.js";
import { createWorkspace, post } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { findPartialChanges } from "../../support/integrity.js";

const dayMs = 24 * 60 * 60 * 1_000;
/** More than two batches, so that the deletion is continued where it ended. */
const many = 1_200;
const quotas = { keys: many + 10, identities: 1_000, bytes: 1e9 };
const sweepOptions = { sweepIntervalMs: 100, auditRetentionDays: "forever", quotas } as const;

let app: TestApp;
/** Two replicas sweep at the same time. */
let other: TestApp;
let sql: postgres.Sql;

beforeAll(async () => {
  app = await openTestApp(sweepOptions);
  other = await openTestApp({ ...sweepOptions, databaseUrl: app.databaseUrl });
  sql = openSql(app.databaseUrl, { max: 1, onnotice: () => {} });
});
afterAll(async () => {
  await sql.end();
  await other.close();
  await app.close();
});

const call = <T>(operation: string, key: string, body: object) => succeed<T>(app.httpUrl, operation, key, body);

/** Imports this many keys, a hundred at a time. */
async function importKeys(key: string, apiId: string, count: number): Promise<void> {
  const keys = Array.from({ length: count }, (_, index) => {
    const hash = createHash("sha256").update(`${apiId} ${index}`).digest("base64");
    return { hash, externalId: `user ${index % 7}` };
  });
  const batches = Array.from({ length: Math.ceil(count / 100) }, (_, index) =>
    keys.slice(index * 100, index * 100 + 100),
  );
  await Promise.all(batches.map((batch) => call("keys.migrateKeys", key, { migrationId: "many", apiId, keys: batch })));
}

const usedKeys = async (workspaceId: string) =>
  Number((await sql`select sum(keys) as keys from usage where workspace_id = ${workspaceId}`)[0]?.["keys"]);

const count = async (table: "keys" | "apis" | "roles", column: string, id: string) =>
  (await sql`select from ${sql(table)} where ${sql(column)} = ${id}`).length;

describe("the keys of a deleted API", () => {
  it("are deleted in the background, each with an event of the service, and no longer count against the quota", async () => {
    const { workspaceId, key } = await createWorkspace(app.httpUrl);
    const { keyId } = await call<{ keyId: string }>("keys.whoami", key, { key });
    const { apiId } = await call<{ apiId: string }>("apis.createApi", key, { name: "large" });
    const { apiId: kept } = await call<{ apiId: string }>("apis.createApi", key, { name: "kept" });
    const { keyId: survivor } = await call<{ keyId: string }>("keys.createKey", key, { apiId: kept });
    await importKeys(key, apiId, many);
    const { keyId: deletedBefore } = await call<{ keyId: string }>("keys.createKey", key, { apiId });
    await call("keys.deleteKey", key, { keyId: deletedBefore });
    await call("apis.deleteApi", key, { apiId });
    await expect.poll(() => usedKeys(workspaceId), { timeout: 20_000 }).toBe(2);

    const deletions = (await allEvents(app.httpUrl)).filter(
      (event) => event.workspaceId === workspaceId && event.type === "key.delete",
    );
    const byService = deletions.filter(({ actor }) => actor === "service");
    expect(byService).toHaveLength(many);
    expect(new Set(byService.map(({ resourceId }) => resourceId)).size).toBe(many);
    expect(deletions.filter(({ actor }) => actor === keyId).map(({ resourceId }) => resourceId)).toEqual([
      deletedBefore,
    ]);
    const listed = await call<{ keyId: string }[]>("keys.listKeys", key, {});
    expect(listed.map((one) => one.keyId)).toEqual([keyId, survivor]);
    expect(await findPartialChanges(sql)).toEqual([]);

    // The rows stay for a day, then those of the keys and the API are removed.
    expect(await count("apis", "api_id", apiId)).toBe(1);
    await app.advance(dayMs - 60_000);
    await sql`select pg_sleep(0.5)`;
    expect(await count("keys", "api_id", apiId)).toBe(many + 1);
    await app.advance(120_000);
    await expect.poll(() => count("apis", "api_id", apiId), { timeout: 20_000 }).toBe(0);
    expect(await count("keys", "api_id", apiId)).toBe(0);
    expect(await count("apis", "api_id", kept)).toBe(1);
    expect((await post(app.httpUrl, "/v2/keys.getKey", key, { keyId: survivor })).status).toBe(200);
  }, 120_000);

  it("are deleted although many empty APIs were deleted before", async () => {
    const { workspaceId, key } = await createWorkspace(app.httpUrl);
    const { apiId } = await call<{ apiId: string }>("apis.createApi", key, { name: "last" });
    await importKeys(key, apiId, 3);
    await sql`
      insert into apis (api_id, workspace_id, name, created_at, deleted_at)
      select 'api_empty_' || n, ${workspaceId}, 'empty', now(), now() - interval '1 hour' from generate_series(1, 100) as n`;
    await call("apis.deleteApi", key, { apiId });
    await expect.poll(() => usedKeys(workspaceId), { timeout: 20_000 }).toBe(1);
    await app.advance(2 * dayMs);
    await expect.poll(() => count("apis", "workspace_id", workspaceId), { timeout: 20_000 }).toBe(0);
  });
});

describe("a deleted role", () => {
  it("is removed after a day; keys that had it stay as they are", async () => {
    const { key } = await createWorkspace(app.httpUrl);
    const { roleId } = await call<{ roleId: string }>("permissions.createRole", key, {
      name: "former",
      permissions: ["a"],
    });
    const made = await call<{ keyId: string; key: string }>("keys.createKey", key, {
      roles: ["former"],
      permissions: ["b"],
    });
    await call("permissions.deleteRole", key, { role: roleId });
    await app.advance(dayMs - 60_000);
    await sql`select pg_sleep(0.5)`;
    expect(await count("roles", "role_id", roleId)).toBe(1);
    await app.advance(120_000);
    await expect.poll(() => count("roles", "role_id", roleId), { timeout: 20_000 }).toBe(0);
    const verified = await call<object>("keys.verifyKey", key, { key: made.key });
    expect(verified).toMatchObject({ code: "VALID", permissions: ["b"], roles: [] });
    await call("keys.updateKey", key, { keyId: made.keyId, name: "still there" });
    expect(await findPartialChanges(sql)).toEqual([]);
  });
});
