import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { connectPostgres, type Sql } from "../../../src/storage/postgres/connection.js";
import { migrate } from "../../../src/storage/postgres/migrate.js";
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

/** A pool of its own, as each process has. */
function pool(): Sql {
  const sql = connectPostgres(database.url);
  pools.push(sql);
  return sql;
}

async function tablesOf(sql: Sql): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    select table_name::text as name from information_schema.tables where table_schema = 'public' order by 1`;
  return rows.map(({ name }) => name);
}

async function recorded(sql: Sql) {
  return sql<{ name: string; sha256: string; appliedAt: Date }[]>`select * from migrations order by name`;
}

/** With a folder of migrations of its own. */
async function inFolder(test: (folder: URL, write: (name: string, text: string) => void) => Promise<void>) {
  const path = mkdtempSync(join(tmpdir(), "latchkey-migrations-"));
  const write = (name: string, text: string) => writeFileSync(join(path, name), text);
  await test(pathToFileURL(`${path}/`), write).finally(() => rmSync(path, { recursive: true }));
}

describe("migrations", () => {
  it("bring an empty database up to date and are recorded", async () => {
    const sql = pool();
    await migrate(sql);
    expect(await tablesOf(sql)).toEqual(expect.arrayContaining(["cluster_state", "identities", "keys", "workspaces"]));
    expect((await recorded(sql)).map(({ name }) => name)).toContain("0001_schema.sql");
  });

  it("are applied once: a second start changes nothing and loses nothing", async () => {
    const sql = pool();
    await migrate(sql);
    const before = await recorded(sql);
    await sql`update cluster_state set lease_ms = 41`;
    await migrate(sql);
    expect(await recorded(sql)).toEqual(before);
    expect(await sql`select lease_ms from cluster_state`).toEqual([{ leaseMs: 41 }]);
  });

  it("are applied once when ten processes start at the same moment", async () => {
    const starting = Array.from({ length: 10 }, pool);
    await Promise.all(starting.map((sql) => migrate(sql)));
    const sql = pool();
    const names = (await recorded(sql)).map(({ name }) => name);
    expect(names).toEqual([...new Set(names)]);
    expect(names).toContain("0001_schema.sql");
    expect(await sql`select count(*)::int from cluster_state`).toEqual([{ count: 1 }]);
  });

  it("let several whole services start at once on one empty database", async () => {
    const starts = await Promise.allSettled([1, 2, 3].map(() => openTestApp({ databaseUrl: database.url })));
    await Promise.all(starts.map((start) => start.status === "fulfilled" && start.value.close()));
    expect(starts.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "fulfilled"]);
  });

  it("refuse to go on when an applied one was changed, name it, and change nothing", async () => {
    const sql = pool();
    await migrate(sql);
    await sql`update migrations set sha256 = 'another' where name = '0001_schema.sql'`;
    const before = await recorded(sql);
    await expect(migrate(sql)).rejects.toThrow(/0001_schema\.sql was changed/);
    expect(await recorded(sql)).toEqual(before);
  });

  it("are applied in the order of their names, also those that come later", async () => {
    const sql = pool();
    await inFolder(async (folder, write) => {
      write("0001_first.sql", "create table events (what text)");
      await migrate(sql, folder);
      write("0003_third.sql", "insert into events values ('third')");
      write("0002_second.sql", "insert into events values ('second')");
      await migrate(sql, folder);
      await migrate(sql, folder);
    });
    expect(await sql`select what from events`).toEqual([{ what: "second" }, { what: "third" }]);
    expect((await recorded(sql)).map(({ name }) => name)).toEqual([
      "0001_first.sql",
      "0002_second.sql",
      "0003_third.sql",
    ]);
  });

  it("refuse a database of the development versions, say what to do, and change nothing", async () => {
    const sql = pool();
    await sql`create table migrations (name text primary key, sha256 text not null, applied_at timestamptz)`;
    await sql`insert into migrations values ('0001_foundation.sql', 'its', now()), ('0002_lifecycle.sql', 'its', now())`;
    await expect(migrate(sql)).rejects.toMatchObject({
      name: "UserError",
      message: expect.stringMatching(/development version .*0001_foundation\.sql.* Start with an empty database/),
    });
    expect(await tablesOf(sql)).toEqual(["migrations"]);
  });

  it("accept a database with a migration of a newer version: an old replica may restart during an upgrade", async () => {
    const sql = pool();
    await migrate(sql);
    await sql`insert into migrations values ('9999_later.sql', 'its')`;
    const before = await recorded(sql);
    await migrate(sql);
    expect(await recorded(sql)).toEqual(before);
  });

  it("leave nothing behind when one fails midway, and succeed once the obstacle is gone", async () => {
    const sql = pool();
    // Stands in the way of a table that is created after others.
    await sql`create table keys (obstacle text)`;
    await expect(migrate(sql)).rejects.toThrow(/keys/);
    expect(await tablesOf(sql)).toEqual(["keys"]);
    await sql`drop table keys`;
    await migrate(sql);
    expect(await tablesOf(sql)).toContain("cluster_state");
  });

  it("that fail do not keep other processes waiting", async () => {
    const failing = pool();
    await failing`create table keys (obstacle text)`;
    await expect(migrate(failing)).rejects.toThrow();
    const [locks] = await failing`select count(*)::int as held from pg_locks
      where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`;
    expect(locks).toEqual({ held: 0 });
    await failing`drop table keys`;
    await migrate(pool());
  });

  it("give the connection back as it was, with its limit on statements", async () => {
    const sql = pool();
    await migrate(sql);
    const settings = await Promise.all(Array.from({ length: 10 }, () => sql`show statement_timeout`));
    expect(new Set(settings.map(([row]) => row?.["statementTimeout"]))).toEqual(new Set(["10s"]));
  });
});
