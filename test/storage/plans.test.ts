import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createChangesStore } from "../../src/auth/store.js";
import { createIdentitiesStore } from "../../src/identities/store.js";
import { createKeysStore } from "../../src/keys/store.js";
import { connectPostgres, type Sql } from "../../src/storage/postgres.js";
import { openSchema, type Schema } from "./schema.js";

const rows = 30_000;

let schema: Schema;
/** Two workspaces, the second of which has the younger half of all keys and identities. */
let older: string;
let younger: string;

beforeAll(async () => {
  schema = await openSchema();
  older = await schema.insertWorkspace();
  younger = await schema.insertWorkspace();
  const { sql } = schema;
  // Otherwise something may be known of the tables before a test wants it.
  await sql`alter table keys set (autovacuum_enabled = false)`;
  await sql`alter table identities set (autovacuum_enabled = false)`;
  const workspace = sql`case when n <= ${rows / 2} then ${older} else ${younger} end`;
  await sql`
    insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)
    select 'id_' || lpad(n::text, 26, '0'), ${workspace}, 'user_' || n, '{}', now(), now()
    from generate_series(1, ${rows}) as n`;
  await sql`
    insert into keys (key_id, workspace_id, hash, start, enabled, permissions, identity_id, created_at, updated_at)
    select 'key_' || lpad(n::text, 26, '0'), ${workspace}, sha256(n::text::bytea), 'lk_test', n % 1000 <> 0, '{}',
      'id_' || lpad(n::text, 26, '0'), now(), now()
    from generate_series(1, ${rows}) as n`;
});
afterAll(() => schema.close());

/** How many rows a piece of work reads, wherever it finds them, on one connection that plans as it is told. */
async function rowsRead(planning: string, work: (sql: Sql) => Promise<unknown>): Promise<number> {
  const more = { plan_cache_mode: planning };
  const sql = connectPostgres(schema.url, { connections: 1, statementMs: 10_000, more });
  const read = async () => {
    await sql`select pg_stat_force_next_flush()`;
    const [row] = await sql<{ read: number }[]>`
      select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::float8 as read from pg_stat_user_tables
      where relname in ('keys', 'identities')`;
    return row?.read ?? Number.NaN;
  };
  try {
    const before = await read();
    await work(sql);
    return (await read()) - before;
  } finally {
    await sql.end();
  }
}

const last = (prefix: string) => `${prefix}_${`${rows - 50}`.padStart(26, "0")}`;
const call = { requestId: "req_of_the_plans", deadline: Number.POSITIVE_INFINITY };
const all = { externalId: undefined, enabled: undefined };
const first = { limit: 100, after: "" };
const pages: [name: string, most: number, list: (sql: Sql) => Promise<readonly unknown[]>][] = [
  ["the first keys", 303, (sql) => createKeysStore(sql).listKeys(call, younger, all, first)],
  [
    "the last keys",
    303,
    (sql) => createKeysStore(sql).listKeys(call, younger, all, { limit: 100, after: last("key") }),
  ],
  ["one key", 6, (sql) => createKeysStore(sql).listKeys(call, younger, all, { limit: 1, after: last("key") })],
  [
    "the keys that are disabled",
    60,
    (sql) => createKeysStore(sql).listKeys(call, younger, { ...all, enabled: false }, first),
  ],
  [
    "the keys that are enabled",
    303,
    (sql) => createKeysStore(sql).listKeys(call, younger, { ...all, enabled: true }, first),
  ],
  [
    "the keys of an identity",
    10,
    (sql) => createKeysStore(sql).listKeys(call, younger, { ...all, externalId: "user_20000" }, first),
  ],
  ["the first identities", 202, (sql) => createIdentitiesStore(sql).listIdentities(call, younger, undefined, first)],
  [
    "the last identities",
    202,
    (sql) => createIdentitiesStore(sql).listIdentities(call, younger, undefined, { limit: 100, after: last("id") }),
  ],
];

describe.each(["force_custom_plan", "force_generic_plan", "auto"])("with %s", (planning) => {
  const readings = 8; // a plan may be kept from the sixth on

  it("the question for changes reads none of what has not changed, although nothing is known of the tables", async () => {
    const read = await rowsRead(planning, async (sql) => {
      for (let time = 0; time < readings; time++) await createChangesStore(sql).changedSince(0);
    });
    expect(read).toBe(0);
  });

  it.each(pages)("a list of %s reads little more than what it shows", async (_name, most, list) => {
    await schema.sql`analyze keys, identities`;
    let found = 0;
    const read = await rowsRead(planning, async (sql) => {
      for (let time = 0; time < readings; time++) found = (await list(sql)).length;
    });
    await schema.sql`delete from pg_statistic where starelid in ('keys'::regclass, 'identities'::regclass)`;
    expect(found).toBeGreaterThan(0);
    expect(read / readings).toBeLessThanOrEqual(most);
  });
});
