import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import postgres from "postgres";
import type { TestProject } from "vitest/node";
import type { migrateDatabase as MigrateDatabase } from "../src/app.js";
import type { startBackends as StartBackends } from "../src/embedded/backends.js";

declare module "vitest" {
  interface ProvidedContext {
    databaseUrl: string;
    redisUrl: string;
    template: string;
  }
}

/** One private PostgreSQL and one private Redis for the whole run, gone afterwards. Nobody else's are touched. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  // The built file: it forks a process, which needs JavaScript. `npm test` builds first.
  const built = new URL("../dist/src/embedded/backends.js", import.meta.url).href;
  const { startBackends }: { startBackends: typeof StartBackends } = await import(built);
  const dataDir = mkdtempSync(join(tmpdir(), "latchkey-test-"));
  const searchPath = process.env["PATH"] ?? "";
  const backends = await startBackends({ dataDir, searchPath, withRedis: true, durable: false });
  project.provide("databaseUrl", backends.databaseUrl);
  project.provide("redisUrl", backends.redisUrl ?? "");
  project.provide("template", await createTemplate(backends.databaseUrl));
  return async () => {
    await backends.stop();
    rmSync(dataDir, { recursive: true, force: true });
  };
}

/** A database to copy: with the schema, and a lease so short that tests need not wait for changes to be acknowledged. */
async function createTemplate(databaseUrl: string): Promise<string> {
  const name = "template_of_tests";
  const url = new URL(databaseUrl);
  url.pathname = `/${name}`;
  const admin = postgres(databaseUrl, { max: 1 });
  await admin.unsafe(`create database ${name}`);
  await admin.end();
  const built = new URL("../dist/src/app.js", import.meta.url).href;
  const { migrateDatabase }: { migrateDatabase: typeof MigrateDatabase } = await import(built);
  await migrateDatabase(url.href);
  const sql = postgres(url.href, { max: 1 });
  await sql`update epoch set lease_ms = 50`;
  await sql.end();
  return name;
}
