import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createLog } from "../../../src/observe/log.js";
import { connectPostgres, type Sql } from "../../../src/storage/postgres/connection.js";
import { migrate } from "../../../src/storage/postgres/migrate.js";
import { createWorkspace, post } from "../../support/clients/http-requests.js";
import { createDatabase, openTestApp } from "../../support/harness.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
let pools: Sql[];

beforeEach(async () => {
  database = await createDatabase();
  pools = [];
});
afterEach(async () => {
  await Promise.all(pools.map((sql) => sql.end({ timeout: 5 })));
  await database.drop();
});

/** A separate pool, as each process has one. */
function openPool(): Sql {
  const sql = connectPostgres(database.url);
  pools.push(sql);
  return sql;
}

async function tablesOf(sql: Sql): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    select table_name::text as name from information_schema.tables where table_schema = 'public' order by 1`;
  return rows.map(({ name }) => name);
}

async function readRecords(sql: Sql) {
  return sql<{ name: string; sha256: string; appliedAt: Date }[]>`select * from migrations order by name`;
}

/** Runs a test with a temporary folder of migrations. */
async function withFolder(test: (folder: URL, write: (name: string, text: string) => void) => Promise<void>) {
  const path = mkdtempSync(join(tmpdir(), "latchkey-migrations-"));
  const write = (name: string, text: string) => writeFileSync(join(path, name), text);
  await test(pathToFileURL(`${path}/`), write).finally(() => rmSync(path, { recursive: true }));
}

describe("migrations", () => {
  it("create the schema of an empty database, and are recorded", async () => {
    const sql = openPool();
    expect(await migrate(sql)).toEqual({ applied: expect.arrayContaining(["0001_schema.sql"]), unknown: [] });
    expect(await tablesOf(sql)).toEqual(expect.arrayContaining(["cluster_state", "identities", "keys", "workspaces"]));
    expect((await readRecords(sql)).map(({ name }) => name)).toContain("0001_schema.sql");
  });

  it("are applied once: a second start changes nothing and loses nothing", async () => {
    const sql = openPool();
    await migrate(sql);
    const before = await readRecords(sql);
    await sql`update cluster_state set lease_ms = 41`;
    expect(await migrate(sql)).toEqual({ applied: [], unknown: [] });
    expect(await readRecords(sql)).toEqual(before);
    expect(await sql`select lease_ms from cluster_state`).toEqual([{ leaseMs: 41 }]);
  });

  it("are applied once when ten processes start concurrently", async () => {
    const starting = Array.from({ length: 10 }, openPool);
    const results = await Promise.all(starting.map((sql) => migrate(sql)));
    expect(
      results.filter(({ applied }) => applied.length > 0),
      "one of them reports what it has applied",
    ).toHaveLength(1);
    const sql = openPool();
    const names = (await readRecords(sql)).map(({ name }) => name);
    expect(names).toEqual([...new Set(names)]);
    expect(names).toContain("0001_schema.sql");
    expect(await sql`select count(*)::int from cluster_state`).toEqual([{ count: 1 }]);
  });

  it("let several replicas start concurrently on one empty database", async () => {
    const starts = await Promise.allSettled([1, 2, 3].map(() => openTestApp({ databaseUrl: database.url })));
    await Promise.all(starts.map((start) => start.status === "fulfilled" && start.value.close()));
    expect(starts.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "fulfilled"]);
  });

  it("fail when an applied migration was changed, name it, and change nothing", async () => {
    const sql = openPool();
    await migrate(sql);
    await sql`update migrations set sha256 = 'another' where name = '0001_schema.sql'`;
    const before = await readRecords(sql);
    await expect(migrate(sql)).rejects.toThrow(/0001_schema\.sql was changed/);
    expect(await readRecords(sql)).toEqual(before);
  });

  it("are applied in the order of their names, also those added later", async () => {
    const sql = openPool();
    await withFolder(async (folder, write) => {
      write("0001_first.sql", "create table events (what text)");
      await migrate(sql, folder);
      write("0003_third.sql", "insert into events values ('third')");
      write("0002_second.sql", "insert into events values ('second')");
      await migrate(sql, folder);
      await migrate(sql, folder);
    });
    expect(await sql`select what from events`).toEqual([{ what: "second" }, { what: "third" }]);
    expect((await readRecords(sql)).map(({ name }) => name)).toEqual([
      "0001_first.sql",
      "0002_second.sql",
      "0003_third.sql",
    ]);
  });

  it("fail on a database of a development version, state the remedy, and change nothing", async () => {
    const sql = openPool();
    await sql`create table migrations (name text primary key, sha256 text not null, applied_at timestamptz)`;
    await sql`insert into migrations values ('0001_foundation.sql', 'its', now()), ('0002_lifecycle.sql', 'its', now())`;
    await expect(migrate(sql)).rejects.toMatchObject({
      name: "UserError",
      message: expect.stringMatching(/development version .*0001_foundation\.sql.* Start with an empty database/),
    });
    expect(await tablesOf(sql)).toEqual(["migrations"]);
  });

  it("accept a migration of a newer version: an old replica may restart during a rolling upgrade", async () => {
    const sql = openPool();
    await migrate(sql);
    await sql`insert into migrations values ('9999_later.sql', 'its')`;
    const before = await readRecords(sql);
    expect(await migrate(sql)).toEqual({ applied: [], unknown: ["9999_later.sql"] });
    expect(await readRecords(sql)).toEqual(before);
  });

  it("are rolled back when one fails midway, and succeed once the conflict is gone", async () => {
    const sql = openPool();
    // Conflicts with a table that is created after others.
    await sql`create table keys (obstacle text)`;
    await expect(migrate(sql)).rejects.toThrow(/keys/);
    expect(await tablesOf(sql)).toEqual(["keys"]);
    await sql`drop table keys`;
    await migrate(sql);
    expect(await tablesOf(sql)).toContain("cluster_state");
  });

  it("release their advisory lock when they fail, so that other processes do not wait", async () => {
    const failing = openPool();
    await failing`create table keys (obstacle text)`;
    await expect(migrate(failing)).rejects.toThrow();
    const [locks] = await failing`select count(*)::int as held from pg_locks
      where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`;
    expect(locks).toEqual({ held: 0 });
    await failing`drop table keys`;
    await migrate(openPool());
  });

  it("restore the statement_timeout of the connection that they release", async () => {
    const sql = openPool();
    await migrate(sql);
    const settings = await Promise.all(Array.from({ length: 10 }, () => sql`show statement_timeout`));
    expect(new Set(settings.map(([row]) => row?.["statementTimeout"]))).toEqual(new Set(["10s"]));
  });
});

it("a service on the schema of a later version serves, and logs which migrations it does not know", async () => {
  const lines: string[] = [];
  const log = createLog("warn", { destination: { write: (line: string) => lines.push(line) } });
  const first = await openTestApp({ databaseUrl: database.url });
  await first.close();
  const sql = openPool();
  await sql`insert into migrations (name, sha256) values ('9999_later.sql', 'of a later version')`;
  await sql`alter table keys add column added_later text`;
  const app = await openTestApp({ databaseUrl: database.url, log });
  try {
    const { key } = await createWorkspace(app.httpUrl);
    expect(await post(app.httpUrl, "/v2/keys.createKey", key, {})).toMatchObject({ status: 200 });
    const [line] = lines.filter((each) => each.includes("newer than this version"));
    expect(JSON.parse(line ?? "")).toMatchObject({ level: 40, migrations: ["9999_later.sql"] });
  } finally {
    await app.close();
  }
});
