import type { JsonObject } from "@bufbuild/protobuf";
import type { Call, IdempotencyRecord } from "../call/call.js";
import type { AuthorizedKey } from "../call/context.js";
import { callerUnchanged } from "../revocation/authorized-key.js";
import { isUniqueViolation } from "../storage/postgres/connection.js";
import type { Database } from "../storage/postgres/database.js";
import { type Fragment, sql } from "../storage/postgres/sql.js";

/** A stored response. */
export interface StoredResponse {
  readonly encryptedResponse: Buffer;
  /** What only the statement of the change knew of the response, as ProtoJSON. */
  readonly completion: JsonObject | null;
}

/**
 * The part of a statement that stores the response to the change of its other parts. It follows them, and is empty without a
 * record. A change and its record are one statement: of two concurrent ones with the same key, the second waits for the
 * first and fails as a whole.
 *
 * @param changed the part that has a row if there is a change, and conditions; without a row, nothing is stored
 * @param completion what only the statement knows of the response: an SQL expression for ProtoJSON that is merged into it. It is
 *   not encrypted
 */
export function insertIdempotencyRecord(
  record: IdempotencyRecord | undefined,
  changed: Fragment,
  completion: Fragment = sql`null`,
): Fragment {
  if (record === undefined) return sql``;
  const { id, workspaceId, encrypted, keptHours } = record;
  return sql`,
    recorded as (
      insert into idempotency_records (id, workspace_id, encrypted_response, completion, expires_at)
      select ${id}::bytea, ${workspaceId}::text, ${encrypted}::bytea, ${completion}::json,
        now() + ${keptHours}::float8 * interval '1 hour'
      from ${changed})`;
}

/** Whether a change failed because its record exists: another call has made it, with the same idempotency key. */
export function isDuplicateIdempotencyKey(error: unknown): boolean {
  return isUniqueViolation(error, "idempotency_records_pkey");
}

/** How many expired records each call removes. Each call adds at most one, so expired records do not accumulate. */
const maxExpired = 10;

export type IdempotencyStore = ReturnType<typeof createIdempotencyStore>;

export function createIdempotencyStore(db: Database) {
  return {
    /**
     * The stored response with this id, for a caller that is as it was when the call was authorized. Also removes some expired
     * records, this id's included.
     */
    async findResponse(call: Call, id: Buffer, key: AuthorizedKey | undefined): Promise<StoredResponse | undefined> {
      const [row] = await db.run(
        call,
        sql<StoredResponse[]>`
          with expired as (
              delete from idempotency_records
              where expires_at <= now() and id = any(${id}::bytea || array(
                select id from idempotency_records where expires_at <= now()
                order by expires_at limit ${maxExpired} for update skip locked)))
          select encrypted_response, completion from idempotency_records
          where id = ${id} and expires_at > now() and ${callerUnchanged(key)}`,
      );
      return row;
    },
  };
}
