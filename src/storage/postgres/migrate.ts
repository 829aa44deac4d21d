import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import type { Sql, Statement } from "./connection.js";

const folder = new URL("./migrations/", import.meta.url);

/** Held while migrating, so that of replicas that start at once one migrates and the others wait. */
const lock = 5_138_008_422;

/**
 * Brings the schema up to date: applies each SQL file of the folder once, in the order of their names, all in one
 * transaction. Polls for the lock instead of waiting inside Postgres, where a waiting session would hold up others.
 */
export async function migrate(sql: Sql): Promise<void> {
  while (!(await sql.begin(applyPending))) await sleep(50);
}

/** False if another process is migrating at this moment. */
async function applyPending(transaction: Statement): Promise<boolean> {
  await transaction`set local statement_timeout = 0`;
  const [row] = await transaction<{ locked: boolean }[]>`select pg_try_advisory_xact_lock(${lock}) as locked`;
  if (!row?.locked) return false;

  await transaction`
    create table if not exists migrations (
      name text primary key,
      sha256 text not null,
      applied_at timestamptz not null default now()
    )`;
  const rows = await transaction<{ name: string; sha256: string }[]>`select name, sha256 from migrations`;
  const applied = new Map(rows.map(({ name, sha256 }) => [name, sha256]));

  for (const { name, text, sha256 } of await readMigrations()) {
    const known = applied.get(name);
    if (known === sha256) continue;
    if (known !== undefined) throw new Error(`migration ${name} was changed after it had been applied; add another`);
    await transaction.unsafe(text);
    await transaction`insert into migrations (name, sha256) values (${name}, ${sha256})`;
  }
  return true;
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
