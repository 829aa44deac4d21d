import postgres from "postgres";
import type { Ledger } from "./lane.js";

/** Operations that leave an event whenever they are accepted; others leave one if they change something. */
const alwaysChange = /^(create|delete|reroll)/;
const canChange = /^(create|delete|reroll|update|disable|enable)/;

/** Holds the database against what was answered: nothing refused has left a trace, and nothing is there in half. */
export async function findHalves(databaseUrl: string, ledger: Ledger): Promise<string[]> {
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => {} });
  try {
    const events = await sql<{ requestId: string }[]>`select request_id as "requestId" from audit_events`;
    const changed = new Set(events.map(({ requestId }) => requestId));
    const unanswered = [...changed].filter((id) => !ledger.has(id));
    const found = unanswered.map((id) => `a change by ${id}, which was never answered`);
    for (const [id, { operation, accepted, told }] of ledger) {
      if (changed.has(id) && accepted === false) found.push(`was refused, and changed something: ${told()}`);
      if (changed.has(id) && accepted && !canChange.test(operation))
        found.push(`only reads, and changed something: ${told()}`);
      if (!changed.has(id) && accepted && alwaysChange.test(operation))
        found.push(`was accepted, and left no event: ${told()}`);
    }
    return [...found, ...(await rowsUnlikeTheirEvents(sql))];
  } finally {
    await sql.end();
  }
}

/** Every row is as the last event about it tells: a row that was written without one, or otherwise, is not. */
async function rowsUnlikeTheirEvents(sql: postgres.Sql): Promise<string[]> {
  const unlike = await sql<{ id: string; row: string; event: string | null }[]>`
    with last as (
      select distinct on (resource_id) resource_id, type, after from audit_events order by resource_id, position desc
    ), told as (
      select key_id as id, told(k)::jsonb - 'identityId' as row from keys k where deleted_at is null
      union all select identity_id, told(i)::jsonb from identities i
      union all select workspace_id, told(w)::jsonb from workspaces w
    )
    select id, row::text, after::text as event from told left join last on resource_id = id
    where (after::jsonb - 'identityId') is distinct from row`;
  return unlike.map(({ id, row, event }) => `${id} is ${row}, but its last event says ${event}`);
}
