import { inject, vi } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import type { AppOptions } from "../../src/app.js";
import { createLog } from "../../src/observe/log.js";
import { createWorkspace } from "./clients/http-requests.js";
import { createDatabase, openTestApp } from "./harness.js";
import { openProxy } from "./proxy.js";

/** A line of the log. */
export interface Line {
  readonly level: number;
  readonly msg: string;
  readonly err?: { readonly message: string };
}

export type BehindProxy = Awaited<ReturnType<typeof openBehindProxy>>;

/**
 * A service with a workspace and its log, a proxy in front of its PostgreSQL, and SQL access that bypasses the proxy.
 */
export async function openBehindProxy(leaseMs = 50, overrides: Partial<AppOptions> = {}) {
  const database = await createDatabase(inject("template"));
  const sql = openSql(database.url, { max: 2, onnotice: () => {} });
  await sql`update cluster_state set lease_ms = ${leaseMs}, wait_ms = ${leaseMs}`;
  const proxy = await openProxy(database.url);
  const lines: Line[] = [];
  const log = createLog("info", { destination: { write: (line) => lines.push(JSON.parse(line)) } });
  const app = await openTestApp({ databaseUrl: proxy.url, metricsPort: 0, log, ...overrides });
  // Proxy and service share one process: while it is very busy at first, PostgreSQL may seem unresponsive.
  const { workspaceId, key } = await vi.waitFor(() => createWorkspace(app.httpUrl), { timeout: 10_000 });
  return {
    app,
    proxy,
    sql,
    databaseUrl: database.url,
    workspaceId,
    key,
    /** The log lines so far that match. */
    logged: (what: RegExp) => lines.filter(({ msg, err }) => what.test(`${msg} ${err?.message ?? ""}`)),
    async close() {
      proxy.resume();
      await app.close();
      await proxy.close();
      await sql.end({ timeout: 1 });
      await database.drop();
    },
  };
}
