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
 * the default timeout is sometimes too short. Services on the run's own Redis have it anyway.
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
 * Waits until the service has renewed its lease, and so has polled the change log and the database's time. The second renewal is
 * the first that was certainly requested after this call.
 */
export async function twoRenewals(app: App): Promise<void> {
  const count = async () => {
    const text = await (await app.metrics()).metrics();
    return total(parseSamples(text), "latchkey_lease_renewals_total", { result: "succeeded" });
  };
  const before = await count();
  await vi.waitUntil(async () => (await count()) >= before + 2, { timeout: 10_000, interval: 5 });
}

/**
 * Longer timeouts for servers that the service reaches directly: on a busy machine they are sometimes slower than the defaults,
 * and the service then responds without them. Tests of outages use a proxy, which has another address, and so the defaults.
 */
function timeoutsFor(databaseUrl: string, redis: AppOptions["redis"]): Partial<AppOptions> {
  const isDirect = (url: string | undefined, own: string) =>
    url !== undefined && new URL(url).host === new URL(own).host;
  return {
    ...(isDirect(databaseUrl, inject("databaseUrl")) && { pollTimeoutMs: 5_000 }),
    ...(isDirect(redis?.urls[0], inject("redisUrl")) && longRedisTimeouts),
  };
}

/** Opens an application. Close it in afterAll. */
export async function openTestApp(overrides: Partial<AppOptions> = {}): Promise<TestApp> {
  const database = overrides.databaseUrl ? undefined : await createDatabase(inject("template"));
  const databaseUrl = overrides.databaseUrl ?? database?.url ?? "";
  const redis = "redis" in overrides ? overrides.redis : redisAt(inject("redisUrl"));
  const app = await openApp({
    ...appOptions,
    databaseUrl,
    redis,
    operators: [operatorCredential],
    log,
    // A sweep would change rows that a test compares, or wait for a table that it has locked. The first one comes in the second
    // half of the interval.
    sweepIntervalMs: 20 * 86_400_000,
    ...timeoutsFor(databaseUrl, redis),
    ...overrides,
  });
  // Redis is bypassed until a first probe has succeeded.
  if (!("redis" in overrides)) {
    await vi.waitUntil(async () => (await app.readiness())["redis"] === "in use", { timeout: 10_000, interval: 5 });
  }
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
