import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { openSql } from "../../commands/open-sql.js";
import type { migrateDatabase as MigrateDatabase } from "../../src/app.js";
import type { startBackends as StartBackends } from "../../src/embedded/start.js";
import { clockAhead } from "./database-clock.js";
import { type Findings, searchRemains } from "./secret-scan.js";

declare module "vitest" {
  interface ProvidedContext {
    databaseUrl: string;
    redisUrl: string;
    template: string;
    /** The folder for output that is searched for secrets after all tests. */
    evidence: string;
  }
}

/** Starts a private PostgreSQL and a private Redis for the whole run, and removes them afterwards. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  // The built file: it forks a process, which needs JavaScript. `npm test` builds first.
  const built = new URL("../../dist/src/embedded/start.js", import.meta.url).href;
  const { startBackends }: { startBackends: typeof StartBackends } = await import(built);
  const dataDir = mkdtempSync(join(tmpdir(), "latchkey-test-"));
  const searchPath = process.env["PATH"] ?? "";
  const backends = await startBackends({ dataDir, searchPath, withRedis: true, durable: false });
  project.provide("databaseUrl", backends.databaseUrl);
  project.provide("redisUrl", backends.redisUrl ?? "");
  project.provide("template", await createTemplate(backends.databaseUrl));
  const evidence = join(dataDir, "evidence");
  mkdirSync(evidence);
  project.provide("evidence", evidence);
  return async () => {
    const databaseUrls = await databasesAt(backends.databaseUrl);
    report(await searchRemains({ evidence, databaseUrls, redisUrl: backends.redisUrl }));
    await backends.stop();
    rmSync(dataDir, { recursive: true, force: true });
  };
}

/**
 * A template database: with the schema, a clock that tests can advance, and a lease so short that tests need not wait
 * for changes to be acknowledged.
 */
async function createTemplate(databaseUrl: string): Promise<string> {
  const name = "template_of_tests";
  const url = new URL(databaseUrl);
  url.pathname = `/${name}`;
  const admin = openSql(databaseUrl, { max: 1 });
  await admin.unsafe(`create database ${name}`);
  await admin.end();
  const built = new URL("../../dist/src/app.js", import.meta.url).href;
  const { migrateDatabase }: { migrateDatabase: typeof MigrateDatabase } = await import(built);
  await migrateDatabase(url.href);
  const sql = openSql(url.href, { max: 1 });
  await sql`update cluster_state set lease_ms = 50, wait_ms = 50`;
  await sql.unsafe(clockAhead(0));
  await sql.end();
  return name;
}

/** The databases that were not dropped. */
async function databasesAt(databaseUrl: string): Promise<string[]> {
  const admin = openSql(databaseUrl, { max: 1 });
  const databases = await admin<{ name: string }[]>`select datname as name from pg_database where datallowconn`;
  await admin.end();
  return databases.map(({ name }) => new URL(`/${name}`, databaseUrl).href);
}

/** Reports how much was searched. A secret that was found fails the run: this late, vitest itself would not fail. */
function report({ searched, leaks }: Findings): void {
  const amounts = [...searched].map(([kind, count]) => `${count.toLocaleString("en")} ${kind}`).join(", ");
  process.stdout.write(`searched for secrets: ${amounts || "no output"}\n`);
  if (leaks.length === 0) return;
  process.stderr.write(`found secrets where they do not belong:\n${leaks.join("\n")}\n`);
  process.exitCode = 1;
}
