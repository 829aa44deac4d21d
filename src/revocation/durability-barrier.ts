import type { Call } from "../call/call.js";
import type { Database } from "../storage/postgres/database.js";
import { OutcomeUnknown } from "../storage/postgres/errors.js";
import { sql } from "../storage/postgres/sql.js";

/**
 * Makes every change that was visible before as durable as an acknowledged one. A change may be visible before a
 * synchronous standby has it, if the wait for its commit was interrupted. A statement that only reads does not wait for
 * the standby. So the barrier commits a logical message that has no reader: PostgreSQL confirms a commit only after all
 * commits before it.
 *
 * The statement may have waited for a connection, and a standby without the change may have been promoted meanwhile. On
 * that server, the commit says nothing about the values that were read. So the barrier fails if the timeline differs
 * from the one that was known before the read. Timelines follow each other, so everything that was read in between is
 * of the same timeline. Right after a crash the timeline is empty, and proves nothing.
 */
export function createDurabilityBarrier(db: Database) {
  return async (call: Call, timeline: string): Promise<void> => {
    const [row] = await db.run(
      call,
      sql<{ timeline: string }[]>`
        select timeline(), pg_logical_emit_message(true, 'latchkey', '')`,
    );
    if (timeline === "" || row?.timeline !== timeline)
      throw new OutcomeUnknown("another server has taken over, or PostgreSQL has crashed, since this was read", "");
  };
}
