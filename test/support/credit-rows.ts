import type postgres from "postgres";

/** Inserts a workspace and keys with these credits, by their ids; null for a key that needs none. */
export async function insertCredits(
  sql: postgres.Sql,
  workspaceId: string,
  credits: Readonly<Record<string, number | null>>,
): Promise<void> {
  const ids = Object.keys(credits);
  await sql`
    insert into workspaces (workspace_id, name, created_at) values (${workspaceId}, 'test', now()) on conflict do nothing`;
  await sql`
    insert into keys (key_id, workspace_id, hash, start, enabled, permissions, has_credits, created_at, updated_at)
    select id, ${workspaceId}, sha256(id::bytea), 'lk_abcd', true, '{}', remaining <> 'none', now(), now()
    from unnest(string_to_array(${ids.join()}, ','),
      string_to_array(${ids.map((id) => credits[id] ?? "none").join()}, ',')) as given (id, remaining)`;
  await sql`
    insert into key_credits (key_id, remaining, refilled_at)
    select id, remaining::bigint, now()
    from unnest(string_to_array(${ids.join()}, ','),
      string_to_array(${ids.map((id) => credits[id] ?? "none").join()}, ',')) as given (id, remaining)
    where remaining <> 'none'`;
}

/** How many credits each of these keys has left in the database. */
export async function storedCredits(sql: postgres.Sql, ...keyIds: string[]): Promise<Record<string, number>> {
  const rows = await sql<{ keyId: string; remaining: number }[]>`
    select key_id as "keyId", remaining::int from key_credits
    where key_id = any (string_to_array(${keyIds.join()}, ',')) order by key_id`;
  return Object.fromEntries(rows.map(({ keyId, remaining }) => [keyId, remaining]));
}
