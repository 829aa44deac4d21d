import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import type postgres from "postgres";
import type { Sql } from "./postgres.js";

const folder = new URL("./migrations/", import.meta.url);

/** Held while migrating, so that of replicas that start at once one migrates and the others wait. */
const lock = 5_138_008_422;

/** Brings the schema up to date: applies each SQL file of the folder once, in the order of their names. */
export async function migrate(sql: Sql): Promise<void> {
  const connection = await sql.reserve();
  try {
    await connection`set statement_timeout = 0`;
    await acquireLock(connection);
    await applyPending(connection);
  } finally {
    await connection.unsafe(`reset statement_timeout; select pg_advisory_unlock(${lock})`).catch(() => {});
    connection.release();
  }
}

/** Polls instead of waiting inside Postgres: a waiting session would deadlock with CREATE INDEX CONCURRENTLY. */
async function acquireLock(connection: postgres.ReservedSql): Promise<void> {
  for (;;) {
    const [row] = await connection<{ locked: boolean }[]>`select pg_try_advisory_lock(${lock}) as locked`;
    if (row?.locked) return;
    await sleep(50);
  }
}

async function applyPending(connection: postgres.ReservedSql): Promise<void> {
  await connection`
    create table if not exists migrations (
      name text primary key,
      sha256 text not null,
      applied_at timestamptz not null default now()
    )`;
  const rows = await connection<{ name: string; sha256: string }[]>`select name, sha256 from migrations`;
  const applied = new Map(rows.map(({ name, sha256 }) => [name, sha256]));

  for (const { name, text, sha256 } of await readMigrations()) {
    const known = applied.get(name);
    if (known === sha256) continue;
    if (known !== undefined) throw new Error(`migration ${name} was changed after it had been applied; add another`);
    // Statements sent as one text are one transaction: all of the file and its record, or nothing.
    await connection.unsafe(`${text}; insert into migrations (name, sha256) values ('${name}', '${sha256}')`);
  }
}

async function readMigrations() {
  const names = (await readdir(folder)).filter((name) => name.endsWith(".sql")).sort();
  return Promise.all(
    names.map(async (name) => {
      const text = await readFile(new URL(name, folder), "utf8");
      return { name, text, sha256: createHash("sha256").update(text).digest("hex") };
    }),
  );
}
