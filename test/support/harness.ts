import { randomUUID } from "node:crypto";
import { pino } from "pino";
import { inject, vi } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { type App, type AppOptions, openApp } from "../../src/app.js";
import { appOptions, redisAt } from "./app-options.js";
import { keep, writeEvidence } from "./artifacts.js";
import { clockAhead, withMovableClock } from "./database-clock.js";
import { parseSamples, total } from "./metric-samples.js";
import { operatorKey } from "./operator-key.js";
import { suspiciousRows } from "./secret-scan.js";

export { operatorKey, redisAt };

/** The log of test applications, at its most talkative: all of it is searched for secrets in the end. */
const log = pino({ level: "trace", base: null }, { write: (line: string) => keep("lines of log", line) });

/** A fresh database in the test run's own PostgreSQL: empty, or with the schema and a short lease. */
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
 * For services that are to use their Redis without fail: what it does not answer in time is answered without it, and on
 * a busy machine the standard is sometimes too short.
 */
export const patientWithRedis = { redisTimeoutMs: 10_000 };

/** A whole service on free ports, with a database of its own and the run's real Redis. */
export interface TestApp extends App {
  readonly databaseUrl: string;
  /** Moves the database's clock ahead, and with it that of every service that uses the database. */
  advance(ms: number): Promise<void>;
}

/** By how many milliseconds the clocks of databases are ahead. */
const aheadOf = new Map<string, number>();

/** Until the service has asked the database for its time once more: the second answer is to a question that was sent later. */
async function twoRenewals(app: App): Promise<void> {
  const count = async () => {
    const text = await (await app.metrics()).metrics();
    return total(parseSamples(text), "latchkey_lease_renewals_total", { result: "succeeded" });
  };
  const before = await count();
  await vi.waitUntil(async () => (await count()) >= before + 2, { timeout: 10_000, interval: 5 });
}

/** Opens an application; close it in afterAll. */
export async function openTestApp(overrides: Partial<AppOptions> = {}): Promise<TestApp> {
  const database = overrides.databaseUrl ? undefined : await createDatabase(inject("template"));
  const databaseUrl = overrides.databaseUrl ?? database?.url ?? "";
  const app = await openApp({
    ...appOptions,
    databaseUrl,
    redis: redisAt(inject("redisUrl")),
    operatorKey,
    log,
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
      keep("pages of metrics", await (await app.metrics()).metrics());
      await app.close();
      await database?.drop();
    },
  };
}
