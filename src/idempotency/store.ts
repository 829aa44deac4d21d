import type { Call, IdempotencyRecord } from "../call/call.js";
import type { AuthorizedKey } from "../call/context.js";
import { callerUnchanged } from "../revocation/authorized-key.js";
import { type Fragment, isUniqueViolation, type Sql, type Statement } from "../storage/postgres/connection.js";
import { run } from "../storage/postgres/query.js";

/** How long an answer is kept. */
const keptFor = "24 hours";

/**
 * The part of a statement that keeps the answer to the change that its other parts make; it comes after them, and may be
 * nothing. A change and its answer are one statement, so neither is there without the other: of two that come at once,
 * the second waits for the first, and fails as a whole.
 *
 * @param made the part that has a row if there is a change; if it has none, nothing is kept
 */
export function insertIdempotencyRecord(
  sql: Statement,
  answer: IdempotencyRecord | undefined,
  made: Fragment,
): Fragment {
  if (answer === undefined) return sql``;
  const { id, encrypted } = answer;
  return sql`,
    kept as (
      insert into idempotency_records (id, encrypted_response, expires_at)
      select ${id}::bytea, ${encrypted}::bytea, now() + ${keptFor}::interval from ${made})`;
}

/** Whether a change failed because its answer was kept already: somebody else has made it, with the same key. */
export function isDuplicateIdempotencyKey(error: unknown): boolean {
  return isUniqueViolation(error, "idempotency_records_pkey");
}

/** How many answers that nobody will get any more are removed at a time: more than can be added by then. */
const fewExpired = 10;

export type IdempotencyStore = ReturnType<typeof createIdempotencyStore>;

export function createIdempotencyStore(sql: Sql) {
  return {
    /** What is kept under this id, for a caller who still is as it was authorized. Removes some of what has expired, this id's included, so that no timer need do it. */
    async findAnswer(call: Call, id: Buffer, key: AuthorizedKey | undefined): Promise<Buffer | undefined> {
      const [row] = await run(
        call,
        sql<{ encryptedResponse: Buffer }[]>`
        with expired as (
            delete from idempotency_records
            where expires_at <= now() and id = any(${id}::bytea || array(
              select id from idempotency_records where expires_at <= now()
              order by expires_at limit ${fewExpired} for update skip locked)))
        select encrypted_response from idempotency_records
        where id = ${id} and expires_at > now() and ${callerUnchanged(sql, key)}`,
      );
      return row?.encryptedResponse;
    },
  };
}
