import type { ISql } from "postgres";
import { mintId } from "../../src/ids.js";
import { mintSecret } from "../../src/keys/secret.js";
import { connectPostgres, poolSettings, type Sql } from "../../src/storage/postgres/connection.js";
import { type Database, openDatabase } from "../../src/storage/postgres/database.js";
import { migrate } from "../../src/storage/postgres/migrate.js";
import { createDatabase } from "./harness.js";

/** A database with the schema, accessed by SQL, without a service. */
export interface Schema {
  readonly url: string;
  readonly sql: Sql;
  /** The same for stores. */
  readonly db: Database;
  insertWorkspace(): Promise<string>;
  insertKey(workspaceId: string): Promise<string>;
  /** Whether a workspace is stamped with the transaction id of its last write. */
  isWorkspaceStamped(workspaceId: string): Promise<boolean>;
  /** The same for a workspace's keys, oldest first. */
  areKeysStamped(workspaceId: string): Promise<boolean[]>;
  close(): Promise<void>;
}

/** Opens a new, migrated database. Close it in afterAll. */
export async function openSchema(given?: { url: string; drop(): Promise<void> }): Promise<Schema> {
  const database = given ?? (await createDatabase());
  // Without a timeout: to insert many rows takes long on a busy machine.
  const sql = connectPostgres(database.url, { ...poolSettings, statementMs: 0 });
  const db = openDatabase(database.url, { connections: 2, statementMs: 10_000 });
  await migrate(db);
  return {
    url: database.url,
    sql,
    db,
    async insertWorkspace() {
      const id = mintId("ws");
      await sql`insert into workspaces (workspace_id, name, created_at) values (${id}, 'test', now())`;
      return id;
    },
    async insertKey(workspaceId) {
      const id = mintId("key");
      await sql`
        insert into keys (key_id, workspace_id, hash, start, enabled, permissions, created_at, updated_at)
        values (${id}, ${workspaceId}, decode(${mintSecret().hash}, 'hex'), 'lk_test', true, '{}', now(), now())`;
      return id;
    },
    async isWorkspaceStamped(workspaceId) {
      const [row] = await sql<{ stamped: boolean }[]>`
        select changed_xid::xid = xmin as stamped from workspaces where workspace_id = ${workspaceId}`;
      return row?.stamped === true;
    },
    async areKeysStamped(workspaceId) {
      const rows = await sql<{ stamped: boolean }[]>`
        select changed_xid::xid = xmin as stamped from keys where workspace_id = ${workspaceId} order by key_id`;
      return rows.map(({ stamped }) => stamped);
    },
    async close() {
      await sql.end({ timeout: 5 });
      await db.close();
      await database.drop();
    },
  };
}

/** Disables a workspace as the store does, on the given connection. */
export async function disableRow(on: ISql, workspaceId: string): Promise<void> {
  await on`
    update workspaces set disabled_at = now(), disabled_reason = 'OWNER_REQUEST' where workspace_id = ${workspaceId}`;
}
