import { afterAll, beforeAll, expect, inject, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { openDatabase } from "../../../src/storage/postgres/database.js";
import { sql } from "../../../src/storage/postgres/sql.js";
import { createDatabase } from "../../support/harness.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
beforeAll(async () => {
  database = await createDatabase(inject("template"));
  const sql = openSql(database.url, { max: 1 });
  await sql.unsafe(`
    create function say(level text) returns text language plpgsql as $$
    begin
      if level = 'warning' then raise warning 'as asked'; else raise notice 'as asked'; end if;
      return level;
    end $$`);
  await sql.end();
});
afterAll(() => database.drop());

function open() {
  const db = openDatabase(database.url, { connections: 1, statementMs: 10_000 });
  onTestFinished(db.close);
  return db;
}

it("a warning of PostgreSQL fails only the statement that raised it, not others that are pipelined", async () => {
  const db = open();
  await db.runInBackground(sql`select`);
  const levels = ["notice", "warning", "notice", "warning", "notice"];
  const results = await Promise.allSettled(levels.map((level) => db.runInBackground(sql`select say(${level})`)));
  expect(results).toMatchObject(
    levels.map((level) =>
      level === "warning"
        ? { status: "rejected", reason: { name: "OutcomeUnknown", code: "40003", message: "as asked" } }
        : { status: "fulfilled" },
    ),
  );
});

it("a statement that raised a warning is not retried", async () => {
  const db = open();
  await db.runInBackground(sql`create table runs (at timestamptz default now())`);
  const change = db.runInBackground(sql`with run as (insert into runs default values) select say('warning')`);
  await expect(change).rejects.toThrow("as asked");
  expect((await db.runInBackground(sql`select from runs`)).count).toBe(1);
});
