import type { Fragment, Sql } from "../storage/postgres/connection.js";

/** How many rows one statement removes: a few milliseconds of work. */
export const batchSize = 500;

/**
 * How many deleted identities one statement looks at. Those that keys still name stay, however many there are: the next
 * statement goes on behind them, and begins anew at the end.
 */
const mostLooked = 2_000;

const theFirst = { deletedAt: new Date(0), identityId: "" };

/** Held by the statement that removes rows, so that of all processes one at a time does. */
const lock = 5_138_008_423;

export type RetentionStore = ReturnType<typeof createRetentionStore>;

/**
 * Removes what is older than it is kept, the oldest first, up to a batch at a time; gives how many rows that were. None while
 * another process does so. Rows that somebody else has locked are left for the next time.
 */
export function createRetentionStore(sql: Sql) {
  let lookedTo = theFirst;

  /** What is dated before this has been kept for long enough. */
  const older = (keptMs: number) => sql`now() - ${keptMs}::float8 * interval '1 millisecond'`;

  async function remove(table: Fragment, id: Fragment, time: Fragment, keptMs: number, condition: Fragment) {
    const { count } = await sql`
      with turn as materialized (select pg_try_advisory_xact_lock(${lock}) as mine)
      delete from ${table} where ${id} in (
        select ${id} from ${table} as old where ${time} < ${older(keptMs)} and (select mine from turn) and ${condition}
        order by ${time} limit ${batchSize} for update of old skip locked)`;
    return count;
  }

  return {
    auditEvents: (keptMs: number) => remove(sql`audit_events`, sql`event_id`, sql`at`, keptMs, sql`true`),
    keys: (keptMs: number) => remove(sql`keys`, sql`key_id`, sql`deleted_at`, keptMs, sql`true`),
    /** A deleted identity stays for as long as there is a key that still names it: at most as many as there are keys. */
    async identities(keptMs: number): Promise<number> {
      const [found] = await sql<{ removed: number; looked: number; deletedAt: Date; identityId: string }[]>`
        with turn as materialized (select pg_try_advisory_xact_lock(${lock}) as mine),
          looked as materialized (
            select identity_id, deleted_at from identities
            where deleted_at < ${older(keptMs)} and (deleted_at, identity_id) > (${lookedTo.deletedAt}, ${lookedTo.identityId})
              and (select mine from turn)
            order by deleted_at, identity_id limit ${mostLooked}),
          removed as (
            delete from identities where identity_id in (
              select identity_id from identities as old
              where identity_id in (select identity_id from looked)
                and not exists (select from keys where keys.identity_id = old.identity_id)
              limit ${batchSize} for update of old skip locked)
            returning identity_id)
        select (select count(*)::int from removed) as removed, (select count(*)::int from looked) as looked,
          last.deleted_at, last.identity_id
        from (select max(deleted_at) as deleted_at from looked) as time
          left join lateral (
            select deleted_at, identity_id from looked where looked.deleted_at = time.deleted_at
            order by identity_id desc limit 1) as last on true`;
      if (found === undefined) return 0;
      if (found.removed < batchSize) lookedTo = found.looked < mostLooked ? theFirst : found;
      return found.removed;
    },
    /** Answers kept for an Idempotency-Key, if no call with one comes to remove them. */
    keptAnswers: () => remove(sql`idempotency_records`, sql`id`, sql`expires_at`, 0, sql`true`),
  };
}
