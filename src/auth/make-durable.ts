import type { Call } from "../call.js";
import type { Sql } from "../storage/postgres.js";
import { run } from "../storage/run.js";

/**
 * Makes every change that is visible now as durable as one that was acknowledged. A change may be visible before a
 * synchronous standby has it: its commit was waited for in vain. What only reads does not wait for the standby. So this
 * commits a message that nobody reads, and PostgreSQL confirms a commit only after all those before it.
 */
export function createMakeDurable(sql: Sql) {
  return async (call: Call): Promise<void> => {
    await run(call, sql`select pg_logical_emit_message(true, 'latchkey', '')`);
  };
}
