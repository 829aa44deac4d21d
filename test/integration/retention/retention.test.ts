import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { createLog } from "../../../src/observe/log.js";
import { allEvents, succeed } from "../../support/calls.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { listKeys, redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { findPartialChanges } from "../../support/integrity.js";
import { cacheKey, callBoth, keyEntryOf, outcomes, readLookups } from "../../support/redis-entries.js";

const dayMs = 24 * 60 * 60 * 1_000;
const sweepOptions = { sweepIntervalMs: 100, auditRetentionDays: 90, metricsPort: 0 };

let app: TestApp;
let other: TestApp;
let sql: postgres.Sql;
let redis: Redis;
const logLines: string[] = [];

beforeAll(async () => {
  const log = createLog("info", { destination: { write: (line: string) => logLines.push(line) } });
  app = await openTestApp({ ...sweepOptions, log });
  other = await openTestApp({ ...sweepOptions, databaseUrl: app.databaseUrl, auditRetentionDays: "forever", log });
  sql = openSql(app.databaseUrl, { max: 1, onnotice: () => {} });
  redis = new Redis(inject("redisUrl"));
  await Promise.all([redisInUse(app), redisInUse(other)]);
});
afterAll(async () => {
  redis.disconnect();
  await sql.end();
  await other.close();
  await app.close();
});

/** Advances the clock of both services, which use one database. */
const advance = (ms: number) => app.advance(ms);

const rowsOf = async (table: "keys" | "identities", ids: readonly string[]) => {
  const id = table === "keys" ? sql`key_id` : sql`identity_id`;
  return (await sql`select from ${sql(table)} where ${id} in ${sql(ids)}`).length;
};

describe("retention of the rows of deleted keys and identities", () => {
  it("removes them after a day; deleted keys stay refused on every replica, even with old Redis entries", async () => {
    const { key } = await createWorkspace(app.httpUrl);
    const deletedKey = await succeed<{ keyId: string; key: string }>(app.httpUrl, "keys.createKey", key, {
      externalId: "user_1",
      scopes: ["keys.read"],
    });
    const validKey = await succeed<{ key: string }>(app.httpUrl, "keys.createKey", key, { scopes: ["keys.read"] });
    const { identityId } = await succeed<{ identityId: string }>(app.httpUrl, "identities.getIdentity", key, {
      externalId: "user_1",
    });
    const entry = await cacheKey(app, redis, deletedKey.key);
    await succeed(app.httpUrl, "keys.deleteKey", key, { keyId: deletedKey.keyId });
    await succeed(app.httpUrl, "identities.deleteIdentity", key, { externalId: "user_1" });

    // Not earlier: a replica that reads the changes one by one sees the deletion.
    await advance(dayMs - 60_000);
    await sql`select pg_sleep(0.5)`;
    expect(await rowsOf("keys", [deletedKey.keyId])).toBe(1);
    // Both have cached a valid key, and the removal of other rows does not evict it.
    expect(await callBoth([app, other], validKey.key)).toEqual(outcomes.served);
    const before = await readLookups(app);

    await advance(120_000);
    await expect.poll(() => rowsOf("keys", [deletedKey.keyId]), { timeout: 10_000 }).toBe(0);
    await expect.poll(() => rowsOf("identities", [identityId]), { timeout: 10_000 }).toBe(0);
    expect((await listKeys(app, validKey.key)).status).toBe(200);
    const after = await readLookups(app);
    expect(after["key postgres"]).toBe(before["key postgres"]);
    expect(after["key redis"]).toBe(before["key redis"]);

    await redis.set(keyEntryOf(deletedKey.key), entry);
    expect(await callBoth([app, other], deletedKey.key)).toEqual(outcomes.keyUnknown);
    // A replica that starts now has never seen the deletion.
    const newReplica = await openTestApp({ ...sweepOptions, databaseUrl: app.databaseUrl });
    try {
      await redisInUse(newReplica);
      await redis.set(keyEntryOf(deletedKey.key), entry);
      expect(await callBoth([newReplica, newReplica], deletedKey.key)).toEqual(outcomes.keyUnknown);
    } finally {
      await newReplica.close();
    }
    // The service that removed the rows logs it at the end of its sweep.
    await expect.poll(() => logLines.join(), { timeout: 10_000 }).toContain("past their retention period");
  });

  it("keeps the row of an identity without its content for as long as a key refers to it", async () => {
    const { key } = await createWorkspace(app.httpUrl);
    const { identityId } = await succeed<{ identityId: string }>(app.httpUrl, "identities.createIdentity", key, {
      externalId: "user_1",
      meta: { private: "text" },
    });
    const { keyId } = await succeed<{ keyId: string }>(app.httpUrl, "keys.createKey", key, { identityId });
    await succeed(app.httpUrl, "identities.deleteIdentity", key, { identityId });
    expect(await sql`select external_id, meta from identities where identity_id = ${identityId}`).toEqual([
      { external_id: "", meta: {} },
    ]);
    await advance(2 * dayMs);
    await sql`select pg_sleep(0.5)`;
    expect(await rowsOf("identities", [identityId])).toBe(1);
    await succeed(app.httpUrl, "keys.updateKey", key, { keyId, name: "still there" });
    await succeed(app.httpUrl, "keys.deleteKey", key, { keyId });
    await advance(2 * dayMs);
    await expect.poll(() => rowsOf("identities", [identityId]), { timeout: 10_000 }).toBe(0);
  });

  it("removes the row of an identity although keys refer to thousands of earlier deleted ones", async () => {
    const { workspaceId, key } = await createWorkspace(app.httpUrl);
    await sql`
      insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)
      select 'id_' || lpad(n::text, 26, '0'), ${workspaceId}, 'user ' || n, '{}', now(), now()
      from generate_series(1, 4500) as n`;
    await sql`
      insert into keys (key_id, workspace_id, hash, start, enabled, scopes, permissions, identity_id, created_at, updated_at)
      select 'key_' || lpad(n::text, 26, '0'), ${workspaceId}, sha256(n::text::bytea), 'lk_0000', true, '{}', '{}',
        'id_' || lpad(n::text, 26, '0'), now(), now()
      from generate_series(1, 4500) as n`;
    await sql`
      update identities set deleted_at = now() - right(identity_id, 26)::int * interval '1 second'
      where workspace_id = ${workspaceId}`;
    const { identityId } = await succeed<{ identityId: string }>(app.httpUrl, "identities.createIdentity", key, {
      externalId: "user_1",
    });
    await succeed(app.httpUrl, "identities.deleteIdentity", key, { identityId });
    await advance(2 * dayMs);
    await expect.poll(() => rowsOf("identities", [identityId]), { timeout: 20_000 }).toBe(0);
    const [left] = await sql`select count(*)::int from identities where workspace_id = ${workspaceId}`;
    expect(left).toEqual({ count: 4_500 });
    await sql`delete from keys where workspace_id = ${workspaceId} and start = 'lk_0000'`;
  });
});

describe("retention of audit events", () => {
  it("removes them after the configured period, in batches, and reduces the usage of the quota", async () => {
    const { workspaceId, key } = await createWorkspace(app.httpUrl);
    // Three batches.
    await sql`
      insert into audit_events (event_id, workspace_id, type, actor, resource_id, request_id, at)
      select 'evt_' || lpad(n::text, 26, '0'), ${workspaceId}, 'key.update', 'operator', 'key_1', 'req_' || n,
        to_timestamp(${(await succeed<{ createdAt: number }[]>(app.httpUrl, "keys.listKeys", key, {}))[0]?.createdAt ?? 0} / 1000.0)
      from generate_series(1, 1200) as n`;
    const bytes = async () =>
      Number((await sql`select sum(bytes) as bytes from usage where workspace_id = ${workspaceId}`)[0]?.["bytes"]);
    const full = await bytes();
    await advance(89 * dayMs);
    await succeed(app.httpUrl, "keys.createKey", key, { name: "younger" });
    await sql`select pg_sleep(0.5)`;
    const count = async () =>
      (await allEvents(app.httpUrl)).filter((event) => event.workspaceId === workspaceId).length;
    expect(await count()).toBe(1_203);
    await advance(2 * dayMs);
    await expect.poll(count, { timeout: 20_000 }).toBe(1);
    expect(await bytes()).toBeLessThan(full / 10);
  });

  it("keeps the usage counts exact", async () => {
    const halves = await findPartialChanges(sql);
    expect(halves.filter((half) => half.includes("usage"))).toEqual([]);
  });
});

describe("retention of counts of verifications", () => {
  it("removes them after 90 days, in batches, and the numbers of the last batches after a day", async () => {
    const { workspaceId } = await createWorkspace(app.httpUrl);
    const insert = (from: number, to: number) => sql`
      insert into verification_counts (resource_id, tag, hour, workspace_id, valid, rate_limited, usage_exceeded,
        insufficient_permissions, disabled, expired)
      select 'key_' || n, 'tag', date_trunc('hour', now()), ${workspaceId}, 1, 0, 0, 0, 0, 0
      from generate_series(${from}::int, ${to}::int) as n`;
    const counter = randomUUID();
    await sql`insert into verification_counters values (${counter}, 1, now())`;
    const counts = async () => (await sql`select from verification_counts where workspace_id = ${workspaceId}`).length;
    const counters = async () => (await sql`select from verification_counters where counter_id = ${counter}`).length;
    await insert(1, 1_200); // three batches
    await advance(89 * dayMs);
    await insert(1, 3);
    await expect.poll(counters, { timeout: 20_000 }).toBe(0);
    expect(await counts()).toBe(1_203);
    await advance(2 * dayMs);
    await expect.poll(counts, { timeout: 20_000 }).toBe(3);
  });
});
