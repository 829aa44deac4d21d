import type { Fragment, Statement } from "../storage/postgres/connection.js";
import type { Database } from "../storage/postgres/database.js";
import { allRowsOf } from "./change-log.js";
import { parseSnapshot, type Snapshot } from "./snapshot.js";

/** The last change of a row, or of several rows of a workspace. */
export interface Change {
  /** The id of a key, an identity or a workspace; or what stands for all rows of a workspace. */
  readonly id: string;
  /** The transaction that made it; undefined if they were several. */
  readonly xid: number | undefined;
}

/** What a process must know before it can follow the changes. */
export interface LeaseTerms {
  readonly snapshot: Snapshot;
  /** For how long a process has a lease. */
  readonly leaseMs: number;
  /** For how long a change waits: for no less than any process has a lease. */
  readonly waitMs: number;
  readonly history: string;
  readonly unsafeSetting: UnsafeSetting | null;
}

/** A setting of PostgreSQL by which acknowledged changes could be lost, as it was inherited. */
export type UnsafeSetting = "synchronous_commit = off" | "client_min_messages = error";

/** All that a snapshot includes and an earlier one did not. */
export interface Changed extends LeaseTerms {
  /** True on a server that only follows the primary, or was demoted, and so may not know of the last changes. */
  readonly standby: boolean;
  /** By the database's clock, in milliseconds since 1970: read after the question was sent. */
  readonly time: number;
  /** Undefined: they cannot be told, because they are too many, or because rows were removed that nobody can name. */
  readonly changes: readonly Change[] | undefined;
}

/** Of so many rows of one workspace, changed between two questions, none is named: all of the workspace has changed. */
const mostOfOneWorkspace = 1_000;

/** How many changed rows are looked at. To read more would take longer than a question may. */
const mostChanges = 50_000;

type TermsRow = Omit<LeaseTerms, "snapshot"> & { readonly snapshot: string };

interface ChangedRow extends TermsRow {
  readonly standby: boolean;
  readonly time: number;
  readonly forgottenXid: number;
  readonly changeCount: number;
  /** Null if nothing has changed, or if it is not known where. */
  readonly workspaceId: string | null;
  /** Null if nothing has changed; false if all rows of the workspace, or of all workspaces, count as changed. */
  readonly named: boolean | null;
  readonly ids: string[] | null;
  readonly xids: string[] | null;
}

export function createChangesStore(db: Database) {
  /** Stamps of transactions that are still to come on this server. Each would count as a change at every question. */
  const isForeign = (sql: Statement) => sql`changed_xid >= pg_snapshot_xmax(pg_current_snapshot())`;
  const stampedTables = ["keys", "identities", "workspaces", "removals"] as const;

  // With the second, nobody would be told that a synchronous standby has not confirmed a change.
  const unsafeSetting = (sql: Statement) => sql`
    case when current_setting('synchronous_commit') = 'off' then 'synchronous_commit = off'
      when current_setting('client_min_messages') = 'error' then 'client_min_messages = error' end as unsafe_setting`;

  return {
    /**
     * Removes the stamps that a dump has brought from a server which was further on. Under a lock, because a change that
     * this statement has waited for would look as one of these.
     */
    async removeForeignStamps(): Promise<void> {
      const [row] = await db.runInBackground(
        (sql) => sql<{ found: boolean }[]>`
        select exists (select from keys where ${isForeign(sql)}) or exists (select from identities where ${isForeign(sql)})
          or exists (select from workspaces where ${isForeign(sql)}) or exists (select from removals where ${isForeign(sql)})
          or exists (select from cluster_state where forgotten_xid >= pg_snapshot_xmax(pg_current_snapshot())) as found`,
      );
      if (!row?.found) return;
      await db.begin(async (sql) => {
        await sql`set local statement_timeout = 0`;
        await sql`lock table keys, identities, workspaces, removals, cluster_state in share row exclusive mode`;
        for (const table of stampedTables) {
          await sql`update ${sql(table)} set changed_xid = '0' where ${isForeign(sql)}`;
        }
        await sql`update cluster_state set forgotten_xid = '0', cache_secret = new_cache_secret()`;
      });
    },

    async readTerms(): Promise<LeaseTerms> {
      const [row] = await db.runInBackground(
        (sql) => sql<TermsRow[]>`
        select pg_current_snapshot()::text as snapshot, lease_ms, wait_ms, timeline() as history, ${unsafeSetting(sql)}
        from cluster_state`,
      );
      if (row === undefined) throw leaseRowMissing();
      return { ...row, snapshot: parseSnapshot(row.snapshot) };
    },

    /**
     * One statement, hence one snapshot: no change that it includes is missing. The changes that an earlier snapshot does
     * not include are those of transactions that began later, and of those that were in progress: so nobody has to wait
     * for a long transaction, and none of its changes is missed when it commits at last.
     *
     * In the order of the ids, so that the indexes are used also while nothing is known of a large table: to read it
     * whole would take longer than the lease.
     */
    async changedSince(seen: Snapshot): Promise<Changed> {
      const most = mostChanges + 1;
      const rows = await db.runInBackground((sql) => {
        const xmax = sql`${`${seen.xmax}`}::xid8`;
        const inProgress = sql`${seen.inProgress.map(String)}::text[]::xid8[]`;
        // Two conditions, since no index serves both of them at once.
        const changedIn = (table: Fragment, id: Fragment) => sql`
          (select workspace_id, ${id} as id, changed_xid from ${table}
            where changed_xid >= ${xmax} order by changed_xid limit ${most})
          union all (select workspace_id, ${id}, changed_xid from ${table}
            where changed_xid = any (${inProgress}) limit ${most})`;
        return sql<ChangedRow[]>`
          with present as materialized (
              select pg_current_snapshot()::text as snapshot, lease_ms, wait_ms, timeline() as history, ${unsafeSetting(sql)},
                pg_is_in_recovery() or current_setting('transaction_read_only')::boolean as standby,
                forgotten_xid::text::float8, (extract(epoch from clock_timestamp()) * 1000)::float8 as time
              from cluster_state),
            changed as materialized (
              select * from (
                ${changedIn(sql`keys`, sql`key_id`)}
                union all ${changedIn(sql`identities`, sql`identity_id`)}
                union all ${changedIn(sql`workspaces`, sql`workspace_id`)}
                union all ${changedIn(sql`removals`, sql`null`)}) as unseen limit ${most}),
            by_workspace as (
              select workspace_id, count(*) <= ${mostOfOneWorkspace} and bool_and(id is not null) as named,
                array_agg(id) as ids, array_agg(changed_xid::text) as xids
              from changed group by workspace_id)
          select present.*, (select count(*)::float8 from changed) as change_count, workspace_id, named,
            case when named then ids end as ids, case when named then xids end as xids
          from present left join by_workspace on true`;
      });
      const [first] = rows;
      if (first === undefined) throw leaseRowMissing();
      const { leaseMs, waitMs, history, standby, time, forgottenXid, changeCount } = first;
      const snapshot = parseSnapshot(first.snapshot);
      const canTell = seesAllUpTo(forgottenXid, seen, snapshot) && changeCount <= mostChanges;
      const changes = canTell ? changesOf(rows) : undefined;
      return { snapshot, leaseMs, waitMs, history, unsafeSetting: first.unsafeSetting, standby, time, changes };
    },

    /** Makes what was sealed so far worthless, because its transaction ids may not be counted as they are from now on. */
    async beginHistory(): Promise<void> {
      await db.runInBackground((sql) => sql`select rotate_cache_secret()`);
    },

    /** Whether the database answers at all. */
    async greet(): Promise<void> {
      await db.runInBackground((sql) => sql`select`);
    },
  };
}

/**
 * Whether all transactions up to one that have ended by now had ended before: of the rows that were removed, whoever has not
 * seen the last change cannot learn it any more.
 */
function seesAllUpTo(xid: number, seen: Snapshot, present: Snapshot): boolean {
  return xid < seen.xmax && seen.inProgress.every((running) => running > xid || present.inProgress.includes(running));
}

function changesOf(rows: readonly ChangedRow[]): Change[] | undefined {
  const changes: Change[] = [];
  for (const { workspaceId, named, ids, xids } of rows) {
    if (named === null) continue;
    if (named) ids?.forEach((id, index) => void changes.push({ id, xid: Number(xids?.[index]) }));
    else if (workspaceId !== null) changes.push({ id: allRowsOf(workspaceId), xid: undefined });
    else return undefined;
  }
  return changes;
}

const leaseRowMissing = () => new Error("the table cluster_state has lost its row");
