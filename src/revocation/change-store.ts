import type { Database } from "../storage/postgres/database.js";
import { type Fragment, sql } from "../storage/postgres/sql.js";
import { allRowsOf } from "./change-log.js";
import { parseSnapshot, type Snapshot } from "./snapshot.js";

/** The last change of a row, or of several rows of a workspace. */
export interface Change {
  /**
   * The id of a key, an identity, an API, a role or a workspace, or an id that represents all overrides or all rows of a
   * workspace.
   */
  readonly id: string;
  /** The workspace that the rows belong to. */
  readonly workspaceId: string;
  /** The transaction that made it; undefined if there were several. */
  readonly xid: number | undefined;
}

/** What a process must know before it can poll for changes. */
export interface LeaseTerms {
  readonly snapshot: Snapshot;
  /** The lease time of a process. */
  readonly leaseMs: number;
  /** How long a change waits before it is acknowledged: at least as long as any process has a lease. */
  readonly waitMs: number;
  /** The timeline of the database. Empty after a crash of PostgreSQL, until a process has started the next one. */
  readonly timeline: string;
  readonly unsafeSetting: UnsafeSetting | null;
}

/** An inherited setting of PostgreSQL with which acknowledged changes could be lost. */
export type UnsafeSetting = "synchronous_commit = off" | "client_min_messages = error";

/** Everything that a snapshot includes and an earlier one did not. */
export interface Changed extends LeaseTerms {
  /** True on a server that only follows the primary, or was demoted. It may not know the latest changes. */
  readonly standby: boolean;
  /** Whether the tables receive the changes of another server by logical replication. */
  readonly subscribed: boolean;
  /**
   * The time by the database's clock, in milliseconds since 1970, read after the poll was sent and before the snapshot was
   * taken.
   */
  readonly time: number;
  /** Undefined if they cannot be listed: there are too many, or rows were removed whose ids are lost. */
  readonly changes: readonly Change[] | undefined;
}

/**
 * If more rows than this of one workspace changed between two polls, they are not listed. The whole workspace then
 * counts as changed.
 */
const maxRowsPerWorkspace = 1_000;

/** The maximum number of changed rows that a poll reads. Reading more would exceed its timeout. */
const maxChanges = 50_000;

type TermsRow = Omit<LeaseTerms, "snapshot"> & { readonly snapshot: string };

interface ChangedRow extends TermsRow {
  readonly standby: boolean;
  readonly subscribed: boolean;
  readonly time: number;
  readonly forgottenXid: number;
  readonly changeCount: number;
  /** Null if nothing has changed, or if the workspace is not known. */
  readonly workspaceId: string | null;
  /** Null if nothing has changed. False if all rows of the workspace, or of all workspaces, count as changed. */
  readonly named: boolean | null;
  readonly ids: string[] | null;
  readonly xids: string[] | null;
}

export function createChangeStore(db: Database) {
  /** Stamps with transaction ids that this server has not reached yet. Each would count as a change in every poll. */
  const isForeign = sql`changed_xid >= pg_snapshot_xmax(pg_current_snapshot())`;
  const stampedTables = ["keys", "identities", "apis", "roles", "override_versions", "workspaces", "removals"] as const;

  // With the second, PostgreSQL would not warn that a synchronous standby has not confirmed a change.
  const unsafeSetting = sql`
    case when current_setting('synchronous_commit') = 'off' then 'synchronous_commit = off'
      when current_setting('client_min_messages') = 'error' then 'client_min_messages = error' end as unsafe_setting`;

  // A subscription copies rows with the stamps of the other server, and runs no triggers. So a poll would not find these
  // changes.
  const isSubscribed = sql`
    exists (select from pg_subscription_rel where srrelid = any (${stampedTables}::text[]::regclass[])) as subscribed`;

  return {
    /** Whether the tables receive the changes of another server by logical replication. */
    async isSubscribed(): Promise<boolean> {
      const [row] = await db.runInBackground(sql<{ subscribed: boolean }[]>`select ${isSubscribed}`);
      return row?.subscribed ?? false;
    },

    /**
     * Removes the stamps in a dump that came from a server with higher transaction ids. It takes a lock, because a
     * change that this statement has waited for would otherwise look like one of these stamps.
     */
    async removeForeignStamps(): Promise<void> {
      const [row] = await db.runInBackground(
        sql<{ found: boolean }[]>`
          select exists (select from keys where ${isForeign}) or exists (select from identities where ${isForeign})
            or exists (select from apis where ${isForeign}) or exists (select from roles where ${isForeign})
            or exists (select from override_versions where ${isForeign})
            or exists (select from workspaces where ${isForeign}) or exists (select from removals where ${isForeign})
            or exists (select from cluster_state where forgotten_xid >= pg_snapshot_xmax(pg_current_snapshot())) as found`,
      );
      if (!row?.found) return;
      await db.begin(async (transaction) => {
        await transaction`set local statement_timeout = 0`;
        await transaction`
          lock table keys, identities, apis, roles, override_versions, workspaces, removals, cluster_state
          in share row exclusive mode`;
        for (const table of stampedTables) {
          await transaction`
            update ${transaction(table)} set changed_xid = '0' where changed_xid >= pg_snapshot_xmax(pg_current_snapshot())`;
        }
        await transaction`update cluster_state set forgotten_xid = '0', cache_secret = new_cache_secret()`;
      });
    },

    async readTerms(): Promise<LeaseTerms> {
      const [row] = await db.runInBackground(
        sql<TermsRow[]>`
          select pg_current_snapshot()::text as snapshot, lease_ms, wait_ms, timeline(), ${unsafeSetting}
          from cluster_state`,
      );
      if (row === undefined) throw leaseRowMissing();
      return { ...row, snapshot: parseSnapshot(row.snapshot) };
    },

    /**
     * One statement has one snapshot, so no change that the snapshot includes is missing. The changes that an earlier
     * snapshot does not include are those of transactions that began later, and of those that were in progress. So the
     * poll never waits for a long transaction, and misses none of its changes when it commits.
     *
     * The order by transaction id makes PostgreSQL use the indexes even if it has no statistics of a large table.
     * Reading the whole table would take longer than the lease.
     */
    async changedSince(seen: Snapshot): Promise<Changed> {
      const limit = maxChanges + 1;
      const xmax = sql`${`${seen.xmax}`}::xid8`;
      const inProgress = sql`${seen.inProgress.map(String)}::text[]::xid8[]`;
      // Two queries, because no index serves both conditions at once.
      const changedIn = (table: Fragment, id: Fragment) => sql`
        (select workspace_id, ${id} as id, changed_xid from ${table}
          where changed_xid >= ${xmax} order by changed_xid limit ${limit})
        union all (select workspace_id, ${id}, changed_xid from ${table}
          where changed_xid = any (${inProgress}) limit ${limit})`;
      const rows = await db.runInBackground(sql<ChangedRow[]>`
        with present as materialized (
            select pg_current_snapshot()::text as snapshot, lease_ms, wait_ms, timeline(), ${unsafeSetting},
              pg_is_in_recovery() or current_setting('transaction_read_only')::boolean as standby, ${isSubscribed},
              forgotten_xid::text::float8, (extract(epoch from now()) * 1000)::float8 as time
            from cluster_state),
          changed as materialized (
            select * from (
              ${changedIn(sql`keys`, sql`key_id`)}
              union all ${changedIn(sql`identities`, sql`identity_id`)}
              union all ${changedIn(sql`apis`, sql`api_id`)}
              union all ${changedIn(sql`roles`, sql`role_id`)}
              union all ${changedIn(sql`override_versions`, sql`workspace_id || '/overrides'`)}
              union all ${changedIn(sql`workspaces`, sql`workspace_id`)}
              union all ${changedIn(sql`removals`, sql`null`)}) as unseen limit ${limit}),
          by_workspace as (
            select workspace_id, count(*) <= ${maxRowsPerWorkspace} and bool_and(id is not null) as named,
              array_agg(id) as ids, array_agg(changed_xid::text) as xids
            from changed group by workspace_id)
        select present.*, (select count(*)::float8 from changed) as change_count, workspace_id, named,
          case when named then ids end as ids, case when named then xids end as xids
        from present left join by_workspace on true`);
      const [first] = rows;
      if (first === undefined) throw leaseRowMissing();
      const { leaseMs, waitMs, timeline, standby, subscribed, time, forgottenXid, changeCount } = first;
      const snapshot = parseSnapshot(first.snapshot);
      const isComplete = seesAllUpTo(forgottenXid, seen, snapshot) && changeCount <= maxChanges;
      const changes = isComplete ? changesOf(rows) : undefined;
      return {
        snapshot,
        leaseMs,
        waitMs,
        timeline,
        unsafeSetting: first.unsafeSetting,
        standby,
        subscribed,
        time,
        changes,
      };
    },

    /** Invalidates all signed cache entries: from now on, transaction ids may be assigned a second time. */
    async startTimeline(): Promise<void> {
      await db.runInBackground(sql`select rotate_cache_secret()`);
    },

    /** Starts the timeline after a crash of PostgreSQL, unless another process has. */
    async startTimelineAfterCrash(): Promise<void> {
      await db.runInBackground(sql`insert into server_run default values on conflict do nothing`);
    },

    /** Checks that the database answers. */
    async ping(): Promise<void> {
      await db.runInBackground(sql`select`);
    },
  };
}

/**
 * Whether `seen` includes every transaction up to this id that has ended by now. A removed row no longer shows its last
 * change, so a process that has not seen that change cannot learn of it any more.
 */
function seesAllUpTo(xid: number, seen: Snapshot, present: Snapshot): boolean {
  return xid < seen.xmax && seen.inProgress.every((running) => running > xid || present.inProgress.includes(running));
}

function changesOf(rows: readonly ChangedRow[]): Change[] | undefined {
  const changes: Change[] = [];
  for (const { workspaceId, named, ids, xids } of rows) {
    if (named === null) continue;
    if (workspaceId === null) return undefined;
    if (named) ids?.forEach((id, index) => void changes.push({ id, workspaceId, xid: Number(xids?.[index]) }));
    else changes.push({ id: allRowsOf(workspaceId), workspaceId, xid: undefined });
  }
  return changes;
}

const leaseRowMissing = () => new Error("the table cluster_state has lost its row");
