import type { Fragment, Sql } from "../storage/postgres.js";

/** How many rows one statement removes: a few milliseconds of work. */
export const batchSize = 500;

/** Held by the statement that removes rows, so that of all processes one at a time does. */
const lock = 5_138_008_423;

export type RetentionStore = ReturnType<typeof createRetentionStore>;

/**
 * Removes what is older than it is kept, the oldest first, up to a batch at a time; gives how many rows that were. None while
 * another process does so. Rows that somebody else has locked are left for the next time.
 */
export function createRetentionStore(sql: Sql) {
  async function remove(table: Fragment, id: Fragment, time: Fragment, before: Date, condition: Fragment) {
    const { count } = await sql`
      with turn as materialized (select pg_try_advisory_xact_lock(${lock}) as mine)
      delete from ${table} where ${id} in (
        select ${id} from ${table} as old where ${time} < ${before} and (select mine from turn) and ${condition}
        order by ${time} limit ${batchSize} for update of old skip locked)`;
    return count;
  }

  return {
    auditEvents: (before: Date) => remove(sql`audit_events`, sql`event_id`, sql`at`, before, sql`true`),
    keys: (before: Date) => remove(sql`keys`, sql`key_id`, sql`deleted_at`, before, sql`true`),
    /** A deleted identity stays for as long as there is a key that still names it: at most as many as there are keys. */
    identities: (before: Date) =>
      remove(
        sql`identities`,
        sql`identity_id`,
        sql`deleted_at`,
        before,
        sql`not exists (select from keys where keys.identity_id = old.identity_id)`,
      ),
    /** Answers kept for an Idempotency-Key, if no call with one comes to remove them. */
    keptAnswers: (before: Date) => remove(sql`kept_answers`, sql`id`, sql`expires_at`, before, sql`true`),
  };
}
