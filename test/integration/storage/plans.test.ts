import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createAuditStore } from "../../../src/audit/store.js";
import { createIdentitiesStore } from "../../../src/identities/store.js";
import { createKeysStore } from "../../../src/keys/store.js";
import { createChangeStore } from "../../../src/revocation/change-store.js";
import { type Database, openDatabase } from "../../../src/storage/postgres/database.js";
import type { ScannedPage } from "../../../src/storage/postgres/paging.js";
import { appOptions } from "../../support/app-options.js";
import { openSchema, type Schema } from "../../support/schema.js";

const rows = 30_000;
const { quotas } = appOptions;

let schema: Schema;
/** Two workspaces. The second has the newer half of all keys and identities. */
let older: string;
let younger: string;
/** A workspace whose keys are all disabled, and all belong to one identity. */
let disabled: string;

beforeAll(async () => {
  schema = await openSchema();
  older = await schema.insertWorkspace();
  younger = await schema.insertWorkspace();
  const { sql } = schema;
  // Autovacuum would collect planner statistics before a test wants them.
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
  disabled = await schema.insertWorkspace();
  await sql`
    insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)
    values ('id_owner', ${disabled}, 'owner', '{}', now(), now())`;
  await sql`
    insert into keys (key_id, workspace_id, hash, start, enabled, permissions, identity_id, created_at, updated_at)
    select 'key_x' || lpad(n::text, 25, '0'), ${disabled}, sha256(('x' || n)::bytea), 'lk_test', false, '{}', 'id_owner',
      now(), now()
    from generate_series(1, 12000) as n`;
  await sql`
    insert into audit_events (event_id, workspace_id, type, actor, resource_id, request_id, at)
    select 'evt_' || n, ${older}, 'key.update', 'operator', 'key', 'req', now() from generate_series(1, 12000) as n`;
});
afterAll(() => schema.close());

/** How many rows `work` reads, by index or sequentially, on one connection with this `plan_cache_mode`. */
async function countRowsRead(planCacheMode: string, work: (db: Database) => Promise<unknown>): Promise<number> {
  const parameters = { plan_cache_mode: planCacheMode };
  const db = openDatabase(schema.url, { connections: 1, statementMs: 10_000, parameters });
  const readCounter = async () => {
    await db.runInBackground((sql) => sql`select pg_stat_force_next_flush()`);
    const [row] = await db.runInBackground(
      (sql) => sql<{ read: number }[]>`
      select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::float8 as read from pg_stat_user_tables
      where relname in ('keys', 'identities', 'audit_events')`,
    );
    return row?.read ?? Number.NaN;
  };
  try {
    const before = await readCounter();
    await work(db);
    return (await readCounter()) - before;
  } finally {
    await db.close();
  }
}

const last = (prefix: string) => `${prefix}_${`${rows - 50}`.padStart(26, "0")}`;
const call = { requestId: "req_of_the_plans", deadline: Number.POSITIVE_INFINITY };
const all = { externalId: undefined, enabled: undefined };
const anyEvent = { workspaceId: undefined, type: undefined, resourceId: undefined, since: undefined, until: undefined };
const first = { limit: 100, after: "" };
const pages: [name: string, maxRows: number, list: (db: Database) => Promise<ScannedPage<unknown>>][] = [
  ["the first keys", 303, (db) => createKeysStore(db, quotas).listKeys(call, younger, all, first)],
  [
    "the last keys",
    303,
    (db) => createKeysStore(db, quotas).listKeys(call, younger, all, { limit: 100, after: last("key") }),
  ],
  ["one key", 8, (db) => createKeysStore(db, quotas).listKeys(call, younger, all, { limit: 1, after: last("key") })],
  [
    "the keys that are disabled",
    60,
    (db) => createKeysStore(db, quotas).listKeys(call, younger, { ...all, enabled: false }, first),
  ],
  [
    "the keys that are enabled",
    404,
    (db) => createKeysStore(db, quotas).listKeys(call, younger, { ...all, enabled: true }, first),
  ],
  [
    "the keys of an identity",
    10,
    (db) => createKeysStore(db, quotas).listKeys(call, younger, { ...all, externalId: "user_20000" }, first),
  ],
  [
    "the first identities",
    202,
    (db) => createIdentitiesStore(db, quotas).listIdentities(call, younger, undefined, first),
  ],
  [
    "the last identities",
    202,
    (db) =>
      createIdentitiesStore(db, quotas).listIdentities(call, younger, undefined, { limit: 100, after: last("id") }),
  ],
];

/** Filters that match none of thousands of rows. The statement scans 5,000 rows, and the planner reads some. */
const scans: typeof pages = [
  [
    "the identities that contain a text",
    5_050,
    (db) => createIdentitiesStore(db, quotas).listIdentities(call, older, "nobody", first),
  ],
  [
    "the keys that are enabled, where all are disabled",
    5_050,
    (db) => createKeysStore(db, quotas).listKeys(call, disabled, { ...all, enabled: true }, first),
  ],
  [
    "the keys of an identity that are enabled, where all are disabled",
    5_050,
    (db) => createKeysStore(db, quotas).listKeys(call, disabled, { enabled: true, externalId: "owner" }, first),
  ],
  [
    "the events of a type that never happened",
    5_050,
    (db) => createAuditStore(db).listEvents(call, { ...anyEvent, workspaceId: older, type: "never" }, first),
  ],
  [
    "the events before 1970",
    5_050,
    (db) => createAuditStore(db).listEvents(call, { ...anyEvent, workspaceId: undefined, until: new Date(0) }, first),
  ],
];

describe.each(["force_custom_plan", "force_generic_plan", "auto"])("query plans with %s", (planCacheMode) => {
  const runs = 8; // PostgreSQL may cache a generic plan from the sixth execution on

  it("the change poll reads no unchanged row, even without planner statistics", async () => {
    const { snapshot } = await createChangeStore(schema.db).readTerms();
    // As while transactions are in progress.
    const since = { ...snapshot, inProgress: [snapshot.xmin - 3, snapshot.xmin - 1] };
    const read = await countRowsRead(planCacheMode, async (db) => {
      for (let run = 0; run < runs; run++) await createChangeStore(db).changedSince(since);
    });
    expect(read).toBe(0);
  });

  it.each(pages)("a list of %s reads little more than the rows that it returns", async (_name, maxRows, list) => {
    await schema.sql`analyze keys, identities`;
    let found = 0;
    const read = await countRowsRead(planCacheMode, async (db) => {
      for (let run = 0; run < runs; run++) found = (await list(db)).rows.length;
    });
    await schema.sql`delete from pg_statistic where starelid in ('keys'::regclass, 'identities'::regclass)`;
    expect(found).toBeGreaterThan(0);
    expect(read / runs).toBeLessThanOrEqual(maxRows);
  });

  it.each(scans)("a list of %s has a bounded scan, and returns where it ended", async (_name, maxRows, list) => {
    await schema.sql`analyze keys, identities, audit_events`;
    let page: ScannedPage<unknown> | undefined;
    const read = await countRowsRead(planCacheMode, async (db) => {
      for (let run = 0; run < runs; run++) page = await list(db);
    });
    expect(page).toEqual({ rows: [], scannedTo: expect.any(String) });
    expect(read / runs).toBeLessThanOrEqual(maxRows);
  });
});
