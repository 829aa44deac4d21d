import { randomUUID } from "node:crypto";
import postgres from "postgres";
import { inject } from "vitest";
import { type App, type AppOptions, openApp } from "../src/app.js";
import { createLog } from "../src/observe/log.js";

/** The operator's credential of every test application. */
export const operatorKey = "operator-credential-of-the-tests";

/** A fresh, empty database in the test run's own PostgreSQL. */
export async function createDatabase(): Promise<{ url: string; drop(): Promise<void> }> {
  const name = `test_${randomUUID().replaceAll("-", "")}`;
  const admin = postgres(inject("databaseUrl"), { max: 1, onnotice: () => {} });
  await admin.unsafe(`create database ${name}`);
  const url = new URL(inject("databaseUrl"));
  url.pathname = `/${name}`;
  return {
    url: url.href,
    async drop() {
      await admin.unsafe(`drop database ${name} with (force)`);
      await admin.end();
    },
  };
}

/** A whole service on free ports, with a database of its own and the run's real Redis. */
export interface TestApp extends App {
  readonly databaseUrl: string;
  /** Moves the service's clock ahead. */
  advance(ms: number): void;
}

/** Opens an application; close it in afterAll. */
export async function openTestApp(overrides: Partial<AppOptions> = {}): Promise<TestApp> {
  const database = overrides.databaseUrl ? undefined : await createDatabase();
  let ahead = 0;
  const databaseUrl = overrides.databaseUrl ?? database?.url ?? "";
  const app = await openApp({
    host: "127.0.0.1",
    httpPort: 0,
    grpcPort: 0,
    databaseUrl,
    redisUrl: inject("redisUrl"),
    operatorKey,
    docsBaseUrl: undefined,
    log: createLog("silent"),
    now: () => new Date(Date.now() + ahead),
    ...overrides,
  });
  return {
    ...app,
    databaseUrl,
    advance: (ms) => {
      ahead += ms;
    },
    async close() {
      await app.close();
      await database?.drop();
    },
  };
}
