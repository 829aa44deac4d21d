import type { Statement } from "../storage/postgres/connection.js";
import type { Database } from "../storage/postgres/database.js";

/** How many rows one statement removes: a few milliseconds of work. */
export const batchSize = 500;

/**
 * How many deleted identities one statement scans. Those that keys still refer to stay, however many there are: the next
 * statement continues after them, and starts over at the end.
 */
const maxScanned = 2_000;

const beginning = { deletedAt: new Date(0), identityId: "" };

/** An advisory lock of the statement that removes rows: only one process removes rows at a time. */
const lock = 5_138_008_423;

export type RetentionStore = ReturnType<typeof createRetentionStore>;

/**
 * Removes rows at the end of their retention, oldest first, one batch at a time. Each function returns the number of removed
 * rows: 0 while another process removes rows. Locked rows are left for the next time.
 */
export function createRetentionStore(db: Database) {
  let scannedTo = beginning;

  /** Rows with an earlier time have been kept for long enough. */
  const limitOf = (sql: Statement, keptMs: number) => sql`now() - ${keptMs}::float8 * interval '1 millisecond'`;

  async function remove(table: string, id: string, time: string, keptMs: number): Promise<number> {
    const { count } = await db.runInBackground(
      (sql) => sql`
      with turn as materialized (select pg_try_advisory_xact_lock(${lock}) as mine)
      delete from ${sql(table)} where ${sql(id)} in (
        select ${sql(id)} from ${sql(table)} as old
        where ${sql(time)} < ${limitOf(sql, keptMs)} and (select mine from turn)
        order by ${sql(time)} limit ${batchSize} for update of old skip locked)`,
    );
    return count;
  }

  return {
    auditEvents: (keptMs: number) => remove("audit_events", "event_id", "at", keptMs),
    keys: (keptMs: number) => remove("keys", "key_id", "deleted_at", keptMs),
    /** A deleted identity stays while a key refers to it: at most as many stay as there are keys. */
    async identities(keptMs: number): Promise<number> {
      const [found] = await db.runInBackground(
        (sql) => sql<{ removed: number; scanned: number; deletedAt: Date; identityId: string }[]>`
        with turn as materialized (select pg_try_advisory_xact_lock(${lock}) as mine),
          scanned as materialized (
            select identity_id, deleted_at from identities
            where deleted_at < ${limitOf(sql, keptMs)} and (deleted_at, identity_id) > (${scannedTo.deletedAt}, ${scannedTo.identityId})
              and (select mine from turn)
            order by deleted_at, identity_id limit ${maxScanned}),
          removed as (
            delete from identities where identity_id in (
              select identity_id from identities as old
              where identity_id in (select identity_id from scanned)
                and not exists (select from keys where keys.identity_id = old.identity_id)
              limit ${batchSize} for update of old skip locked)
            returning identity_id)
        select (select count(*)::int from removed) as removed, (select count(*)::int from scanned) as scanned,
          last.deleted_at, last.identity_id
        from (select max(deleted_at) as deleted_at from scanned) as time
          left join lateral (
            select deleted_at, identity_id from scanned where scanned.deleted_at = time.deleted_at
            order by identity_id desc limit 1) as last on true`,
      );
      if (found === undefined) return 0;
      if (found.removed < batchSize) scannedTo = found.scanned < maxScanned ? beginning : found;
      return found.removed;
    },
    /** Expired idempotency records, where no call with an idempotency key has removed them. */
    idempotencyRecords: () => remove("idempotency_records", "id", "expires_at", 0),
  };
}
