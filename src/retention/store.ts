import { insertAuditEvents } from "../audit/store.js";
import { mintId } from "../ids.js";
import type { Database } from "../storage/postgres/database.js";
import { sql, textArrayParameter } from "../storage/postgres/sql.js";

/** How many rows one statement removes: a few milliseconds of work. */
export const batchSize = 500;

/**
 * How many deleted identities one statement scans. Those that keys still refer to stay, however many there are: the next
 * statement continues after them, and starts over at the end.
 */
const maxScanned = 2_000;

/** Of how many deleted APIs one statement deletes keys: most of them may have none. */
const maxApis = 20;

const beginning = { deletedAt: new Date(0), identityId: "" };

/** An advisory lock of the statement that removes rows: only one process removes rows at a time. */
const lock = 5_138_008_423;

/** The part `turn` of a statement. Its row says whether this process removes rows now: while another does, nothing is done. */
export const takeTurn = sql`turn as materialized (select pg_try_advisory_xact_lock(${lock}) as mine)`;

/** What one statement has done. */
export interface Batch {
  readonly rows: number;
  /** Whether rows may be left. */
  readonly mayHaveMore: boolean;
}

export type RetentionStore = ReturnType<typeof createRetentionStore>;

/**
 * Removes rows at the end of their retention, oldest first, one batch at a time. Nothing is done while another process removes
 * rows. Locked rows are left for the next time.
 */
export function createRetentionStore(db: Database) {
  let scannedTo = beginning;

  /** Rows with an earlier time have been kept for long enough. */
  const limitOf = (keptMs: number) => sql`now() - ${keptMs}::float8 * interval '1 millisecond'`;

  /** @param id a column that names rows. An array of its values lets PostgreSQL find the rows directly, also by ctid */
  async function remove(table: string, id: string, time: string, keptMs: number): Promise<Batch> {
    const { count } = await db.runInBackground(
      sql`
        with ${takeTurn}
        delete from ${sql(table)} where ${sql(id)} = any (array(
          select ${sql(id)} from ${sql(table)} as old
          where ${sql(time)} < ${limitOf(keptMs)} and (select mine from turn)
          order by ${sql(time)} limit ${batchSize} for update of old skip locked))`,
    );
    return { rows: count, mayHaveMore: count === batchSize };
  }

  return {
    auditEvents: (keptMs: number) => remove("audit_events", "event_id", "at", keptMs),
    keys: (keptMs: number) => remove("keys", "key_id", "deleted_at", keptMs),
    /** A deleted identity stays while a key refers to it: at most as many stay as there are keys. */
    async identities(keptMs: number): Promise<Batch> {
      const [found] = await db.runInBackground(
        sql<{ removed: number; scanned: number; deletedAt: Date; identityId: string }[]>`
          with ${takeTurn},
            scanned as materialized (
              select identity_id, deleted_at from identities
              where deleted_at < ${limitOf(keptMs)} and (deleted_at, identity_id) > (${scannedTo.deletedAt}, ${scannedTo.identityId})
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
      if (found === undefined) return { rows: 0, mayHaveMore: false };
      if (found.removed < batchSize) scannedTo = found.scanned < maxScanned ? beginning : found;
      return { rows: found.removed, mayHaveMore: found.removed === batchSize };
    },
    roles: (keptMs: number) => remove("roles", "role_id", "deleted_at", keptMs),
    /**
     * Deletes keys of deleted APIs, in the order of their ids. The row of each API contains how far that has come. No new key
     * can appear behind: a statement that creates one locks the API, and finds it deleted.
     *
     * Keys are found by a condition and an order that only one index has. With `api_id = …` and the order of key ids, the
     * planner may scan the keys of all others: with few APIs, each seems to have many keys.
     */
    async keysOfApis(): Promise<Batch> {
      const actor = { actor: "service", requestId: mintId("req"), key: undefined };
      const eventIds = Array.from({ length: batchSize }, () => mintId("evt"));
      const facts = sql`
        select (deleted).workspace_id, (deleted).key_id, audit_snapshot(deleted), null::json, event_id
        from deleted join scanned on scanned.key_id = (deleted).key_id order by number`;
      const isFull = sql`(select count(*) = ${batchSize} from scanned)`;
      const lastPlace = sql`(select max(place) from scanned)`;
      const [found] = await db.runInBackground(sql<{ deleted: number; mayHaveMore: boolean }[]>`
        with ${takeTurn},
          api as materialized (
            select api_id, keys_deleted_to, row_number() over (order by deleted_at, api_id) as place from (
              select api_id, keys_deleted_to, deleted_at from apis
              where deleted_at is not null and keys_deleted_at is null and (select mine from turn)
              order by deleted_at, api_id limit ${maxApis}) as oldest),
          scanned as materialized (
            select key_id, place, number, (${textArrayParameter(eventIds)}::text[])[number] as event_id from (
              select key_id, place, row_number() over (order by place, key_id)::int as number
              from api cross join lateral (
                select key_id from keys
                where (keys.api_id, key_id) > (api.api_id, keys_deleted_to) and keys.api_id <= api.api_id
                order by keys.api_id, key_id limit ${batchSize}) as own
              order by place, key_id limit ${batchSize}) as numbered),
          locked as materialized (
            select key_id from keys where key_id in (select key_id from scanned) and deleted_at is null
            order by key_id for update),
          deleted as (
            update keys set deleted_at = now() from locked where keys.key_id = locked.key_id returning keys as deleted),
          progress as (
            update apis set
              keys_deleted_to = coalesce(
                (select max(key_id) from scanned where scanned.place = api.place), apis.keys_deleted_to),
              keys_deleted_at = case when not ${isFull} or place < ${lastPlace} then now() end
            from api where apis.api_id = api.api_id and (not ${isFull} or place <= ${lastPlace})),
          events as (${insertAuditEvents(actor, ["key.delete", facts, "own ids"])})
        select (select count(*)::int from deleted) as deleted,
          ${isFull} or (select count(*) = ${maxApis} from api) as may_have_more`);
      return { rows: found?.deleted ?? 0, mayHaveMore: found?.mayHaveMore === true };
    },
    /** A deleted API stays until its keys are removed. */
    async apis(keptMs: number): Promise<Batch> {
      const { count } = await db.runInBackground(
        sql`
          with ${takeTurn}
          delete from apis where api_id in (
            select api_id from apis as old
            where keys_deleted_at < ${limitOf(keptMs)} and (select mine from turn)
              and (
                select key_id from keys where (keys.api_id, key_id) > (old.api_id, '') and keys.api_id <= old.api_id
                order by keys.api_id, key_id limit 1) is null
            order by keys_deleted_at limit ${batchSize} for update of old skip locked)`,
      );
      return { rows: count, mayHaveMore: count === batchSize };
    },
    /** The key of these rows has several columns, and no statement updates rows that are so old: ctid names them. */
    verificationCounts: (keptMs: number) => remove("verification_counts", "ctid", "hour", keptMs),
    /** Of processes that have ended. */
    verificationCounters: (keptMs: number) => remove("verification_counters", "counter_id", "stored_at", keptMs),
    /** Expired idempotency records, where no call with an idempotency key has removed them. */
    idempotencyRecords: () => remove("idempotency_records", "id", "expires_at", 0),
  };
}
