import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import type { TransactionSql } from "postgres";
import { UserError } from "../../errors.js";
import type { Database } from "./database.js";

const ownFolder = new URL("./migrations/", import.meta.url);

/** An advisory lock: of replicas that start at the same time, one migrates and the others wait. */
const lock = 5_138_008_422;

/** What a migration has done, by the names of the SQL files. */
export interface MigrationResult {
  readonly applied: readonly string[];
  /** Those of a newer version, which another process has applied. */
  readonly unknown: readonly string[];
}

/**
 * Applies each SQL file of the folder once, in the order of their names, all in one transaction. If all are applied, it
 * only reads, so that a role without the right to change the schema suffices. Polls for the lock instead of waiting in
 * PostgreSQL, where a waiting session would block others. Refuses a database that a development version made.
 */
export async function migrate(db: Pick<Database, "begin">, folder = ownFolder): Promise<MigrationResult> {
  const migrations = await readMigrations(folder);
  for (;;) {
    const result = await db.begin((transaction) => applyPending(transaction, migrations));
    if (result !== undefined) return result;
    await sleep(50);
  }
}

/** Undefined if another process is migrating at this moment. */
async function applyPending(
  transaction: TransactionSql,
  migrations: readonly Migration[],
): Promise<MigrationResult | undefined> {
  const before = await readApplied(transaction);
  const unknown = [...before.keys()].filter((name) => migrations.every((migration) => migration.name !== name)).sort();
  if (pendingOf(migrations, before).length === 0) return { applied: [], unknown };

  await transaction`set local statement_timeout = 0`;
  const [row] = await transaction<{ locked: boolean }[]>`select pg_try_advisory_xact_lock(${lock}) as locked`;
  if (!row?.locked) return undefined;
  const pending = pendingOf(migrations, await readApplied(transaction)); // another process may have applied some
  await requireSchemaRights(transaction, pending);
  await transaction`
    create table if not exists migrations (
      name text primary key,
      sha256 text not null,
      applied_at timestamptz not null default now()
    )`;
  for (const { name, text, sha256 } of pending) {
    await transaction.unsafe(text);
    await transaction`insert into migrations (name, sha256) values (${name}, ${sha256})`;
  }
  return { applied: pending.map(({ name }) => name), unknown };
}

/** The hashes of the applied migrations, by their names. */
async function readApplied(transaction: TransactionSql): Promise<ReadonlyMap<string, string>> {
  const [table] = await transaction<{ exists: boolean }[]>`select to_regclass('migrations') is not null as exists`;
  if (!table?.exists) return new Map();
  const rows = await transaction<{ name: string; sha256: string }[]>`select name, sha256 from migrations`;
  return new Map(rows.map(({ name, sha256 }) => [name, sha256]));
}

/** The migrations that are not applied yet. Throws if the database is not one that they continue. */
function pendingOf(migrations: readonly Migration[], applied: ReadonlyMap<string, string>): readonly Migration[] {
  refuseDevelopmentSchema([...applied.keys()].sort(), migrations);
  return migrations.filter(({ name, sha256 }) => {
    const known = applied.get(name);
    if (known !== undefined && known !== sha256) {
      throw new Error(`migration ${name} was changed after it had been applied; add another`);
    }
    return known === undefined;
  });
}

/** Refuses a role that may not change the schema, which by itself would fail in the middle with the name of a table. */
async function requireSchemaRights(transaction: TransactionSql, pending: readonly Migration[]): Promise<void> {
  const [row] = await transaction<{ allowed: boolean; role: string; owner: string | null }[]>`
    select coalesce(has_schema_privilege(current_schema(), 'create'), false)
        and (owner is null or pg_has_role(owner, 'usage')) as allowed,
      current_user::text as role, pg_get_userbyid(owner)::text as owner
    from (select (select relowner from pg_class where oid = to_regclass('migrations')) as owner) as present`;
  if (row === undefined || row.allowed) return;
  const names = pending.map(({ name }) => name).join(", ");
  const remedy = row.owner === null ? "a role that may create tables" : `the role ${row.owner}, which owns it`;
  throw new UserError(
    `The schema of the database is older than this version: it lacks ${names}. The role ${row.role} of DATABASE_URL may not change it. Run \`latchkey migrate\` with ${remedy}.`,
  );
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
