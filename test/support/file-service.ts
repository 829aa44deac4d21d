import type postgres from "postgres";
import { afterAll } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import type { AppOptions } from "../../src/app.js";
import { createWorkspace } from "./clients/http-requests.js";
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
  return { app, origin: app.httpUrl, ...(await createWorkspace(app.httpUrl)) };
}

/** Opens SQL access for all tests of a file; it is closed after them, before what was opened earlier. */
export function openFileSql(databaseUrl: string, max = 1): postgres.Sql {
  const sql = openSql(databaseUrl, { max, onnotice: () => {} });
  afterAll(() => sql.end({ timeout: 1 }));
  return sql;
}
