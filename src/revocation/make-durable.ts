import type { Call } from "../call/call.js";
import type { Database } from "../storage/postgres/database.js";
import { OutcomeUnknown } from "../storage/postgres/errors.js";

/**
 * Makes every change that was visible before as durable as one that was acknowledged. A change may be visible before a
 * synchronous standby has it: its commit was waited for in vain. What only reads does not wait for the standby. So this
 * commits a message that nobody reads, and PostgreSQL confirms a commit only after all those before it.
 *
 * It may have had to wait for a connection, and a standby without the change may have taken over meanwhile. There, the
 * commit says nothing about what was read. So it fails if the history is another than the one that was known before the
 * reading: histories follow each other, hence all that was read in between is of the same one.
 */
export function createDurabilityBarrier(db: Database) {
  return async (call: Call, history: string): Promise<void> => {
    const [row] = await db.run(
      call,
      (sql) => sql<{ history: string }[]>`
      select timeline() as history, pg_logical_emit_message(true, 'latchkey', '')`,
    );
    if (row?.history !== history) throw new OutcomeUnknown("another server has taken over since this was read", "");
  };
}
