import type { Sql } from "../storage/postgres.js";

/** A row that changed, and the epoch of its last change. */
export interface Change {
  /** The id of a key, an identity or a workspace. */
  readonly id: string;
  readonly epoch: number;
}

/** What a process must know before it can follow the changes. */
export interface Terms {
  readonly epoch: number;
  readonly leaseMs: number;
  readonly history: string;
  readonly unsafeSetting: UnsafeSetting | null;
}

/** A setting of PostgreSQL by which acknowledged changes could be lost, as it was inherited. */
export type UnsafeSetting = "synchronous_commit = off" | "client_min_messages = error";

/** All that changed after an epoch, seen in one snapshot. */
export interface Changed {
  /** The epoch of the snapshot. */
  readonly epoch: number;
  readonly leaseMs: number;
  /** Names the history that the epoch is counted in. A secret: entries in Redis are sealed with it. */
  readonly history: string;
  /** True on a server that only follows the primary, or was demoted, and so may not know of the last changes. */
  readonly standby: boolean;
  readonly unsafeSetting: UnsafeSetting | null;
  /** The last epoch at which rows were removed, whichever they were. */
  readonly removedAt: number;
  /** Undefined: too many to tell. */
  readonly changes: readonly Change[] | undefined;
}

/** How many changes are told one by one. */
export const mostChanges = 10_000;

export function createChangesStore(sql: Sql) {
  // With the second, nobody would be told that a synchronous standby has not confirmed a change.
  const unsafeSetting = sql`
    case when current_setting('synchronous_commit') = 'off' then 'synchronous_commit = off'
      when current_setting('client_min_messages') = 'error' then 'client_min_messages = error' end as unsafe_setting`;

  return {
    async readTerms(): Promise<Terms> {
      const [row] = await sql<Terms[]>`select value::float8 as epoch, lease_ms, history(), ${unsafeSetting} from epoch`;
      if (row === undefined) throw new Error("the table epoch has lost its row");
      return row;
    },

    /**
     * One statement, hence one snapshot: no change up to its epoch is missing. In the order of the epochs, so that the
     * indexes are used also while nothing is known of a large table: to read it whole would take longer than the lease.
     */
    async changedSince(epoch: number): Promise<Changed> {
      const most = mostChanges + 1;
      const rows = await sql<(Omit<Changed, "changes"> & { id: string | null; changedEpoch: number })[]>`
        with present as materialized (
          select value::float8 as epoch, removed_at::float8, lease_ms, history(), ${unsafeSetting},
            pg_is_in_recovery() or current_setting('transaction_read_only')::boolean as standby
          from epoch)
        select present.*, id, changed_epoch::float8 from present left join (
          (select key_id as id, changed_epoch from keys
            where changed_epoch > ${epoch} order by changed_epoch limit ${most})
          union all (select workspace_id, changed_epoch from workspaces
            where changed_epoch > ${epoch} order by changed_epoch limit ${most})
          union all (select identity_id, changed_epoch from identities
            where changed_epoch > ${epoch} order by changed_epoch limit ${most})
          limit ${most}) as changed on true`;
      const [first] = rows;
      if (first === undefined) throw new Error("the table epoch has lost its row");
      const changes = rows.flatMap(({ id, changedEpoch }) => (id === null ? [] : [{ id, epoch: changedEpoch }]));
      return { ...first, changes: changes.length > mostChanges ? undefined : changes };
    },

    /** Makes what was sealed so far worthless, because its epochs may not be counted as they are from now on. */
    async beginHistory(): Promise<void> {
      await sql`update epoch set seal = new_seal()`;
    },

    /** Whether the database answers at all. */
    async greet(): Promise<void> {
      await sql`select`;
    },
  };
}
