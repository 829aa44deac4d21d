import { randomUUID } from "node:crypto";
import { inject, vi } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { type App, type AppOptions, openApp } from "../../src/app.js";
import { createLog } from "../../src/observe/log.js";
import { appOptions, redisAt } from "./app-options.js";
import { keep, writeEvidence } from "./artifacts.js";
import { clockAhead, withMovableClock } from "./database-clock.js";
import { parseSamples, total } from "./metric-samples.js";
import { operatorCredential, operatorKey } from "./operator-key.js";
import { suspiciousRows } from "./secret-scan.js";

export { operatorKey, redisAt };

/** The log of test applications, at trace level. All of it is searched for secrets at the end. */
const log = createLog("trace", { destination: { write: (line: string) => keep("log lines", line) } });

/** A new database in the test run's private PostgreSQL: empty, or with the schema and a short lease. */
export async function createDatabase(template?: string): Promise<{ url: string; drop(): Promise<void> }> {
  const name = `test_${randomUUID().replaceAll("-", "")}`;
  const admin = openSql(inject("databaseUrl"), { max: 1, onnotice: () => {} });
  await admin.unsafe(`create database ${name} ${template ? `template ${template}` : ""}`);
  if (template) await admin.unsafe(withMovableClock(name));
  const url = new URL(inject("databaseUrl"));
  url.pathname = `/${name}`;
  return {
    url: url.href,
    async drop() {
      const { count, text } = await suspiciousRows(url.href);
      keep("rows", text, count);
      writeEvidence();
      await admin.unsafe(`drop database ${name} with (force)`);
      await admin.end();
    },
  };
}

/**
 * For services that must use their Redis: they respond without Redis if it exceeds its timeout, and on a busy machine
 * the default timeout is sometimes too short.
 */
export const longRedisTimeouts = { redisTimeoutMs: 10_000 };

/** A whole service on free ports, with its own database and the run's real Redis. */
export interface TestApp extends App {
  readonly databaseUrl: string;
  /** Advances the database's clock, and with it the clock of every service that uses the database. */
  advance(ms: number): Promise<void>;
}

/** By how many milliseconds each database's clock is ahead. */
const aheadOf = new Map<string, number>();

/**
 * Waits until the service has read the database's time again. The second reading is the first that was certainly
 * requested after this call.
 */
async function twoRenewals(app: App): Promise<void> {
  const count = async () => {
    const text = await (await app.metrics()).metrics();
    return total(parseSamples(text), "latchkey_lease_renewals_total", { result: "succeeded" });
  };
  const before = await count();
  await vi.waitUntil(async () => (await count()) >= before + 2, { timeout: 10_000, interval: 5 });
}

/** The server of a database. */
function serverOf(databaseUrl: string): string {
  return new URL(databaseUrl).host;
}

/** Opens an application. Close it in afterAll. */
export async function openTestApp(overrides: Partial<AppOptions> = {}): Promise<TestApp> {
  const database = overrides.databaseUrl ? undefined : await createDatabase(inject("template"));
  const databaseUrl = overrides.databaseUrl ?? database?.url ?? "";
  const app = await openApp({
    ...appOptions,
    databaseUrl,
    redis: redisAt(inject("redisUrl")),
    operators: [operatorCredential],
    log,
    // A sweep would change rows that a test compares, or wait for a table that it has locked. The first one comes in the second
    // half of the interval.
    sweepIntervalMs: 20 * 86_400_000,
    // On a busy machine the run's own PostgreSQL is sometimes slower than the default. Tests of outages use a proxy, or another
    // server.
    ...(serverOf(databaseUrl) === serverOf(inject("databaseUrl")) && { pollTimeoutMs: 5_000 }),
    ...overrides,
  });
  return {
    ...app,
    databaseUrl,
    async advance(ms) {
      const ahead = (aheadOf.get(databaseUrl) ?? 0) + ms;
      aheadOf.set(databaseUrl, ahead);
      const sql = openSql(databaseUrl, { max: 1, onnotice: () => {} });
      await sql.unsafe(clockAhead(ahead)).finally(() => sql.end());
      await twoRenewals(app);
    },
    async close() {
      keep("metrics pages", await (await app.metrics()).metrics());
      await app.close();
      await database?.drop();
    },
  };
}
