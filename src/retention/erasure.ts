import type { Database } from "../storage/postgres/database.js";
import { type Fragment, sql } from "../storage/postgres/sql.js";
import { type Batch, batchSize, takeTurn } from "./store.js";

/**
 * How long after the deletion of a workspace its erasure begins. By then no statement runs that was authorized before, because
 * statements end after 10 seconds. One whose commit waits for a standby keeps its lock on the row of the workspace, and the
 * deletion waits for it.
 */
const delay = "1 minute";

/** The rows of one kind in a workspace that still have texts. */
interface Rows {
  readonly table: string;
  readonly id: string;
  /** True of the rows to erase. An index serves it together with the workspace. */
  readonly has: Fragment;
  /** How a row loses its texts. Without it, the row is removed: no decision about a key depends on it. */
  readonly erase?: Fragment;
}

const isLive = sql`deleted_at is null`;

/** A key without its texts. */
const withoutTexts = sql`start = '', name = null, meta = null, permissions = '{}', ratelimits = '[]', migration_id = null`;

/**
 * In this order. A row that decisions depend on stays as any other deleted row does, so that replicas find its deletion among
 * the changes. An API is marked as one whose keys are deleted: these keys need no events of their own.
 */
const kinds: readonly Rows[] = [
  {
    table: "apis",
    id: "api_id",
    has: isLive,
    erase: sql`deleted_at = now(), keys_deleted_at = now(), name = ''`,
  },
  {
    table: "keys",
    id: "key_id",
    has: isLive,
    erase: sql`deleted_at = now(), ${withoutTexts}`,
  },
  {
    table: "keys",
    id: "key_id",
    // Only an imported key has no start. It has a migration_id.
    has: sql`deleted_at is not null and (start <> '' or migration_id is not null)`,
    erase: withoutTexts,
  },
  {
    table: "identities",
    id: "identity_id",
    has: isLive,
    erase: sql`deleted_at = now(), external_id = '', meta = '{}', ratelimits = '[]'`,
  },
  {
    table: "roles",
    id: "role_id",
    has: isLive,
    erase: sql`deleted_at = now(), name = '', description = null, permissions = '{}'`,
  },
  { table: "permissions", id: "permission_id", has: sql`true` },
  { table: "rate_limit_overrides", id: "override_id", has: sql`true` },
  { table: "removed_imports", id: "hash", has: sql`true` },
];

/**
 * Some rows of a kind, by the index over their workspace. Not `workspace_id = …`: if most rows seem to be in this workspace,
 * the planner reads the whole table instead, which no longer has any of them in the end.
 */
function select(workspaceId: string, { table, id, has }: Rows, limit: number): Fragment {
  return sql`
    select ${sql(id)} from ${sql(table)}
    where workspace_id >= ${workspaceId} and workspace_id <= ${workspaceId} and ${has}
    order by workspace_id limit ${limit}`;
}

export type Erasure = ReturnType<typeof createErasure>;

/**
 * Erases the texts of deleted workspaces, in batches. Each statement finds by itself what is left, so the erasure continues
 * after a restart, in any process.
 */
export function createErasure(db: Database) {
  /** The deleted workspace whose turn it is. */
  async function nextWorkspace(): Promise<string | undefined> {
    const [row] = await db.runInBackground(
      sql<{ workspaceId: string }[]>`
        select workspace_id from workspaces
        where deleted_at < now() - ${delay}::interval and erased_at is null order by deleted_at limit 1`,
    );
    return row?.workspaceId;
  }

  async function eraseRows(workspaceId: string, kind: Rows): Promise<number> {
    const { table, id, erase } = kind;
    const some = sql`
      workspace_id = ${workspaceId} and (select mine from turn)
      and ${sql(id)} = any (array(${select(workspaceId, kind, batchSize)} for update skip locked))`;
    const { count } = await db.runInBackground(
      erase
        ? sql`with ${takeTurn} update ${sql(table)} set ${erase} where ${some}`
        : sql`with ${takeTurn} delete from ${sql(table)} where ${some}`,
    );
    return count;
  }

  /** The events come last: until its keys are deleted, a workspace may get events from the service itself. */
  async function eraseEvents(workspaceId: string): Promise<number> {
    const [row] = await db.runInBackground(
      sql<{ scanned: number }[]>`
        with ${takeTurn},
          scanned as materialized (
            select position from audit_events
            where (workspace_id, position) > (
                select workspace_id, events_erased_to from workspaces where workspace_id = ${workspaceId})
              and workspace_id <= ${workspaceId} and (select mine from turn)
            order by workspace_id, position limit ${batchSize}),
          erased as (
            update audit_events set
              before = case when before is not null then without_texts(before) end,
              after = case when after is not null then without_texts(after) end
            where position = any (array(select position from scanned))),
          progress as (
            update workspaces set events_erased_to = (select max(position) from scanned)
            where workspace_id = ${workspaceId} and exists (select from scanned))
        select count(*)::int as scanned from scanned`,
    );
    return row?.scanned ?? 0;
  }

  /** True if nothing was left to erase. Checks that by itself: another process may have had the turn before. */
  async function finish(workspaceId: string): Promise<boolean> {
    const events = sql`
      select position from audit_events
      where (workspace_id, position) > (${workspaceId}, events_erased_to) and workspace_id <= ${workspaceId}
      order by workspace_id, position limit 1`;
    const left = kinds.reduce<Fragment>(
      (all, kind) => sql`${all} or (${select(workspaceId, kind, 1)}) is not null`,
      sql`(${events}) is not null`,
    );
    const { count } = await db.runInBackground(sql`
      with ${takeTurn}
      update workspaces set erased_at = now()
      where workspace_id = ${workspaceId} and erased_at is null and (select mine from turn) and not (${left})`);
    return count === 1;
  }

  return {
    /** Erases up to 500 rows of one kind. */
    async eraseWorkspaces(): Promise<Batch> {
      const workspaceId = await nextWorkspace();
      if (workspaceId === undefined) return { rows: 0, mayHaveMore: false };
      for (const kind of kinds) {
        const rows = await eraseRows(workspaceId, kind);
        if (rows > 0) return { rows, mayHaveMore: true };
      }
      const rows = await eraseEvents(workspaceId);
      return { rows, mayHaveMore: rows > 0 || (await finish(workspaceId)) };
    },
  };
}
