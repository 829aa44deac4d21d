import type postgres from "postgres";
import { afterAll, expect, vi } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import type { AppOptions } from "../../src/app.js";
import { createWorkspace, post } from "./clients/http-requests.js";
import { openTestApp, type TestApp } from "./harness.js";

/** Opens an application for all tests of a file; it is closed after them. Call this at the top of the file. */
export async function openFileApp(options: Partial<AppOptions> = {}): Promise<TestApp> {
  const app = await openTestApp(options);
  afterAll(() => app.close());
  return app;
}

/** The application of a file, with a workspace and its first key. */
export async function openFileService(options: Partial<AppOptions> = {}) {
  const app = await openFileApp(options);
  // On a busy machine, PostgreSQL may seem unresponsive at first.
  const workspace = await vi.waitFor(() => createWorkspace(app.httpUrl), { timeout: 10_000 });
  return { app, origin: app.httpUrl, ...workspace };
}

/** The application of a file, with a workspace whose calls are refused by `RATE_LIMIT` for ten minutes. */
export async function openRateLimitedService() {
  const service = await openFileService({ rateLimit: { requests: 1, windowSeconds: 600 } });
  // The first refusal is remembered. Before it, a call may be counted in memory, because Redis is slow or not yet in use.
  await vi.waitFor(
    async () => expect(await post(service.origin, "/v1/keys.listKeys", service.key, {})).toMatchObject({ status: 429 }),
    { timeout: 10_000 },
  );
  return service;
}

/** Opens SQL access for all tests of a file; it is closed after them, before what was opened earlier. */
export function openFileSql(databaseUrl: string, max = 1): postgres.Sql {
  const sql = openSql(databaseUrl, { max, onnotice: () => {} });
  afterAll(() => sql.end({ timeout: 1 }));
  return sql;
}
