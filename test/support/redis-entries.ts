import { setTimeout as sleep } from "node:timers/promises";
import type { Redis } from "ioredis";
import { expect } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { hashSecret } from "../../src/keys/secret.js";
import { createChangeStore, type LeaseTerms } from "../../src/revocation/change-store.js";
import { openDatabase } from "../../src/storage/postgres/database.js";
import { createWorkspace } from "./clients/http-requests.js";
import { listKeys, listKeysGrpc } from "./clients/verify-calls.js";
import type { TestApp } from "./harness.js";

/** The Redis key of a workspace's cache entry. */
export const workspaceEntryOf = (workspaceId: string) => `latchkey:ws:${workspaceId}`;

/** The Redis key of an API key's cache entry. */
export const keyEntryOf = (key: string) => `latchkey:key:${hashOf(key)}`;

/** The hash that identifies a key. */
export const hashOf = (key: string) => hashSecret(key);

/** A workspace with its first key, and the Redis entries of both. */
export interface CachedWorkspace {
  readonly workspaceId: string;
  readonly key: string;
  readonly workspaceEntry: string;
  readonly keyEntry: string;
}

/** A new workspace that this replica has cached in Redis. */
export async function createCachedWorkspace(app: TestApp, redis: Redis): Promise<CachedWorkspace> {
  // On a busy machine a write to Redis may time out, and it is not retried: then another workspace is created.
  for (let attempt = 0; attempt < 10; attempt++) {
    const { workspaceId, key } = await createWorkspace(app.httpUrl);
    await listKeys(app, key);
    for (let waits = 0; waits < 50; waits++) {
      const [workspaceEntry, keyEntry] = await redis.mget(workspaceEntryOf(workspaceId), keyEntryOf(key));
      if (workspaceEntry && keyEntry) return { workspaceId, key, workspaceEntry, keyEntry };
      await sleep(20);
    }
  }
  return expect.fail("no entry arrives in Redis");
}

/** The Redis entry of a key, after a call to this replica has cached it. */
export async function cacheKey(app: TestApp, redis: Redis, key: string): Promise<string> {
  await listKeys(app, key);
  await expect.poll(() => redis.exists(keyEntryOf(key)), { timeout: 5_000 }).toBe(1);
  return (await redis.get(keyEntryOf(key))) ?? "";
}

/** The epoch of a service's database, and the key of its signed entries. */
export async function readTerms(app: TestApp): Promise<LeaseTerms> {
  const db = openDatabase(app.databaseUrl, { connections: 1, statementMs: 10_000 });
  try {
    return await createChangeStore(db).readTerms();
  } finally {
    await db.close();
  }
}

/** Runs SQL in a service's database, bypassing the service. */
export async function inDatabase(app: TestApp, statements: string): Promise<void> {
  const sql = openSql(app.databaseUrl, { max: 1 });
  await sql.unsafe(statements).finally(() => sql.end());
}

/** The outcome of a key's first call to each of two replicas: over HTTP to one, over gRPC to the other. */
export async function callBoth([one, other]: readonly [TestApp, TestApp], key: string): Promise<[string, string]> {
  const [{ status, text }, grpc] = await Promise.all([listKeys(one, key), listKeysGrpc(other, key)]);
  const [, error = text] = /errors-v2\/service\/([a-z_/]+)/.exec(text) ?? [];
  return [status === 200 ? "OK" : error, grpc];
}

/** The outcomes of calls over HTTP and gRPC. */
export const outcomes = {
  served: ["OK", "OK"],
  workspaceDisabled: ["authorization/workspace_disabled", "PERMISSION_DENIED"],
  notPermitted: ["authorization/insufficient_permissions", "PERMISSION_DENIED"],
  keyDisabled: ["authorization/key_disabled", "PERMISSION_DENIED"],
  keyExpired: ["authentication/key_expired", "UNAUTHENTICATED"],
  keyUnknown: ["authentication/key_not_found", "UNAUTHENTICATED"],
};

/** The number of a replica's lookups so far, by cache level. */
export async function readLookups(app: TestApp): Promise<Record<string, number>> {
  const text = await (await fetch(app.metricsUrl ?? "")).text();
  const lines = text.matchAll(/^latchkey_lookups_total\{kind="(\w+)",source="(\w+)"\} (\d+)$/gm);
  return Object.fromEntries([...lines].map(([, kind, source, count]) => [`${kind} ${source}`, Number(count)]));
}
