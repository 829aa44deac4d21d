import { createHash, randomBytes } from "node:crypto";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { succeed } from "../../support/calls.js";
import { createWorkspace, send } from "../../support/clients/http-requests.js";
import { openTestApp, type TestApp } from "../../support/harness.js";

const hourMs = 60 * 60 * 1_000;
const dayMs = 24 * hourMs;

let app: TestApp;
let sql: postgres.Sql;

beforeAll(async () => {
  app = await openTestApp({
    sweepIntervalMs: 100,
    auditRetentionDays: 7,
    deletedRetentionDays: 3,
    usageRetentionDays: 5,
    idempotencyRetentionHours: 2 * 24,
  });
  sql = openSql(app.databaseUrl, { max: 1, onnotice: () => {} });
});
afterAll(async () => {
  await sql.end();
  await app.close();
});

const call = <T>(operation: string, key: string, body: object) => succeed<T>(app.httpUrl, operation, key, body);
const createKey = (key: string, idempotencyKey: string) =>
  send(app.httpUrl, "/v2/keys.createKey", {
    key,
    headers: { "Content-Type": "application/json", "Idempotency-Key": idempotencyKey },
    body: JSON.stringify({ name: "once" }),
  });
const rows = async (table: "keys" | "audit_events" | "verification_counts" | "idempotency_records") =>
  Number((await sql`select count(*) as rows from ${sql(table)}`)[0]?.["rows"]);
const keyRows = async (keyId: string) => (await sql`select from keys where key_id = ${keyId}`).length;

/** Advances the clock, and leaves the time for several sweeps. */
async function pass(ms: number): Promise<void> {
  await app.advance(ms);
  await sql`select pg_sleep(1)`;
}

describe("the configured retention", () => {
  it("applies to each kind of row by itself", async () => {
    const { key } = await createWorkspace(app.httpUrl);
    expect(await createKey(key, "first")).toMatchObject({ status: 200 });
    const { keyId, key: secret } = await call<{ keyId: string; key: string }>("keys.createKey", key, {});
    await call("keys.verifyKey", key, { key: secret });
    await expect.poll(() => rows("verification_counts"), { timeout: 10_000 }).toBeGreaterThan(0);
    await call("keys.deleteKey", key, { keyId });
    const events = await rows("audit_events");

    await pass(2 * dayMs - hourMs);
    expect(await rows("idempotency_records")).toBe(1);
    await pass(2 * hourMs);
    await expect.poll(() => rows("idempotency_records"), { timeout: 10_000 }).toBe(0);
    expect(await keyRows(keyId)).toBe(1);
    await pass(dayMs);
    await expect.poll(() => keyRows(keyId), { timeout: 10_000 }).toBe(0);
    expect(await rows("verification_counts")).toBeGreaterThan(0);
    await pass(2 * dayMs + hourMs);
    await expect.poll(() => rows("verification_counts"), { timeout: 10_000 }).toBe(0);
    expect(await rows("audit_events")).toBe(events);
    await pass(2 * dayMs);
    await expect.poll(() => rows("audit_events"), { timeout: 10_000 }).toBe(0);
    // What is not deleted stays.
    expect(await call("keys.listKeys", key, {})).toHaveLength(2);
  });
});

describe("a key that was deleted, and whose row was removed, does not come back", () => {
  it("by a repeated import with an old list; another workspace can import it", async () => {
    const { key } = await createWorkspace(app.httpUrl);
    const secret = randomBytes(20).toString("hex");
    const hash = createHash("sha256").update(secret).digest("base64");
    const list = { migrationId: "nightly", keys: [{ hash, name: "leaked" }] };
    const { migrated } = await call<{ migrated: { keyId: string }[] }>("keys.migrateKeys", key, list);
    const keyId = migrated[0]?.keyId ?? "";
    await call("keys.deleteKey", key, { keyId });
    await pass(4 * dayMs);
    await expect.poll(() => keyRows(keyId), { timeout: 10_000 }).toBe(0);

    expect(await call("keys.migrateKeys", key, list)).toEqual({ migrated: [], failed: [hash] });
    expect(await call("keys.verifyKey", key, { key: secret })).toMatchObject({ valid: false, code: "NOT_FOUND" });
    const other = await createWorkspace(app.httpUrl);
    expect(await call("keys.migrateKeys", other.key, list)).toMatchObject({ migrated: [{ hash }], failed: [] });
    expect(await call("keys.verifyKey", key, { key: secret })).toMatchObject({ valid: false, code: "NOT_FOUND" });
  });

  it("by a retry of its creation, before and after the stored response is removed", async () => {
    const { key } = await createWorkspace(app.httpUrl);
    const first = JSON.parse((await createKey(key, "again")).text).data;
    await call("keys.deleteKey", key, { keyId: first.keyId });
    const retried = JSON.parse((await createKey(key, "again")).text).data;
    expect(retried).toEqual(first);
    expect(await call("keys.verifyKey", key, { key: first.key })).toMatchObject({ code: "NOT_FOUND" });
    await pass(4 * dayMs);
    await expect.poll(() => keyRows(first.keyId), { timeout: 10_000 }).toBe(0);
    const late = JSON.parse((await createKey(key, "again")).text).data;
    expect(late.key).not.toBe(first.key);
    expect(await call("keys.verifyKey", key, { key: first.key })).toMatchObject({ code: "NOT_FOUND" });
  });
});
