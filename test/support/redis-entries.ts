import { setTimeout as sleep } from "node:timers/promises";
import type { Redis } from "ioredis";
import { expect } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { hashSecret } from "../../src/keys/secret.js";
import { createChangesStore, type LeaseTerms } from "../../src/revocation/change-store.js";
import { openDatabase } from "../../src/storage/postgres/database.js";
import { createWorkspace } from "./clients/http-requests.js";
import { listKeys, listKeysGrpc } from "./clients/verify-calls.js";
import type { TestApp } from "./harness.js";

/** What Redis calls the state of a workspace. */
export const workspaceEntryOf = (workspaceId: string) => `latchkey:ws:${workspaceId}`;

/** What Redis calls a key. */
export const keyEntryOf = (key: string) => `latchkey:key:${hashOf(key)}`;

/** What keys are told apart by. */
export const hashOf = (key: string) => hashSecret(key);

/** A workspace with its first key, and what Redis holds of the two. */
export interface Shared {
  readonly workspaceId: string;
  readonly key: string;
  readonly workspaceEntry: string;
  readonly keyEntry: string;
}

/** A new workspace of which this replica has told Redis. */
export async function createShared(app: TestApp, redis: Redis): Promise<Shared> {
  // On a busy machine a write to Redis may be given up, and it is not tried again: then another workspace is taken.
  for (let attempt = 0; attempt < 10; attempt++) {
    const { workspaceId, key } = await createWorkspace(app.httpUrl);
    await listKeys(app, key);
    for (let waits = 0; waits < 50; waits++) {
      const [workspaceEntry, keyEntry] = await redis.mget(workspaceEntryOf(workspaceId), keyEntryOf(key));
      if (workspaceEntry && keyEntry) return { workspaceId, key, workspaceEntry, keyEntry };
      await sleep(20);
    }
  }
  return expect.fail("nothing arrives in Redis");
}

/** What Redis holds of a key, once this replica has been asked for it. */
export async function shareKey(app: TestApp, redis: Redis, key: string): Promise<string> {
  await listKeys(app, key);
  await expect.poll(() => redis.exists(keyEntryOf(key)), { timeout: 5_000 }).toBe(1);
  return (await redis.get(keyEntryOf(key))) ?? "";
}

/** The epoch of a service's database, and what its entries are sealed with. */
export async function readTerms(app: TestApp): Promise<LeaseTerms> {
  const db = openDatabase(app.databaseUrl, { connections: 1, statementMs: 10_000 });
  try {
    return await createChangesStore(db).readTerms();
  } finally {
    await db.close();
  }
}

/** Runs statements in a service's database, past the service. */
export async function inDatabase(app: TestApp, statements: string): Promise<void> {
  const sql = openSql(app.databaseUrl, { max: 1 });
  await sql.unsafe(statements).finally(() => sql.end());
}

/** How the first call of a key to each of two replicas ends: by HTTP to the one, by gRPC to the other. */
export async function askBoth([one, other]: readonly [TestApp, TestApp], key: string): Promise<[string, string]> {
  const [{ status, text }, grpc] = await Promise.all([listKeys(one, key), listKeysGrpc(other, key)]);
  const [, error = text] = /errors-v2\/service\/([a-z_/]+)/.exec(text) ?? [];
  return [status === 200 ? "OK" : error, grpc];
}

/** How calls end, by HTTP and by gRPC. */
export const outcomes = {
  served: ["OK", "OK"],
  workspaceDisabled: ["authorization/workspace_disabled", "PERMISSION_DENIED"],
  notPermitted: ["authorization/insufficient_permissions", "PERMISSION_DENIED"],
  keyDisabled: ["authorization/key_disabled", "PERMISSION_DENIED"],
  keyExpired: ["authentication/key_expired", "UNAUTHENTICATED"],
  keyUnknown: ["authentication/key_not_found", "UNAUTHENTICATED"],
};

/** Where a replica has found keys and workspaces so far, by its metrics. */
export async function readLookups(app: TestApp): Promise<Record<string, number>> {
  const text = await (await fetch(app.metricsUrl ?? "")).text();
  const lines = text.matchAll(/^latchkey_lookups_total\{kind="(\w+)",source="(\w+)"\} (\d+)$/gm);
  return Object.fromEntries([...lines].map(([, kind, source, count]) => [`${kind} ${source}`, Number(count)]));
}
