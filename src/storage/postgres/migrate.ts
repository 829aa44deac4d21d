import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { UserError } from "../../errors.js";
import type { Statement } from "./connection.js";
import type { Database } from "./database.js";

const ownFolder = new URL("./migrations/", import.meta.url);

/** An advisory lock: of replicas that start at the same time, one migrates and the others wait. */
const lock = 5_138_008_422;

/**
 * Applies each SQL file of the folder once, in the order of their names, all in one transaction. Polls for the lock instead
 * of waiting in PostgreSQL, where a waiting session would block others.
 * Refuses a database that a development version made.
 */
export async function migrate(db: Pick<Database, "begin">, folder = ownFolder): Promise<void> {
  const migrations = await readMigrations(folder);
  while (!(await db.begin((transaction) => applyPending(transaction, migrations)))) await sleep(50);
}

/** False if another process is migrating at this moment. */
async function applyPending(transaction: Statement, migrations: readonly Migration[]): Promise<boolean> {
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

  refuseDevelopmentSchema([...applied.keys()].sort(), migrations);
  for (const { name, text, sha256 } of migrations) {
    const known = applied.get(name);
    if (known === sha256) continue;
    if (known !== undefined) throw new Error(`migration ${name} was changed after it had been applied; add another`);
    await transaction.unsafe(text);
    await transaction`insert into migrations (name, sha256) values (${name}, ${sha256})`;
  }
  return true;
}

/**
 * Every database of a released version has the first migration. One of a later version is accepted: while replicas are
 * replaced one by one, an old one may start again after a new one has migrated.
 */
function refuseDevelopmentSchema(applied: readonly string[], migrations: readonly Migration[]): void {
  if (applied.length === 0 || applied.includes(migrations[0]?.name ?? "")) return;
  throw new UserError(
    `The database was made by a development version of Latchkey (${applied[0]}) and cannot be upgraded. Start with an empty database: set DATABASE_URL, or DATA_DIR for the embedded one, to another.`,
  );
}

interface Migration {
  readonly name: string;
  readonly text: string;
  readonly sha256: string;
}

async function readMigrations(folder: URL): Promise<Migration[]> {
  const names = (await readdir(folder)).filter((name) => name.endsWith(".sql")).sort();
  return Promise.all(
    names.map(async (name) => {
      const text = await readFile(new URL(name, folder), "utf8");
      return { name, text, sha256: createHash("sha256").update(text).digest("hex") };
    }),
  );
}
