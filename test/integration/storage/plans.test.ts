import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createApisStore } from "../../../src/apis/store.js";
import { createAuditStore } from "../../../src/audit/store.js";
import { createIdentitiesStore, type IdentityReference } from "../../../src/identities/store.js";
import { mintId } from "../../../src/ids.js";
import { createImportStore } from "../../../src/keys/import-store.js";
import type { NewKey } from "../../../src/keys/rows.js";
import { mintSecret } from "../../../src/keys/secret.js";
import { createKeysStore } from "../../../src/keys/store.js";
import { createOverridesStore, type OverridesStore } from "../../../src/limiter/overrides-store.js";
import { createRoleStore } from "../../../src/permissions/role-store.js";
import { createPermissionsStore } from "../../../src/permissions/store.js";
import { createRetentionStore } from "../../../src/retention/store.js";
import { createChangeStore } from "../../../src/revocation/change-store.js";
import { type Database, openDatabase } from "../../../src/storage/postgres/database.js";
import type { ScannedPage } from "../../../src/storage/postgres/paging.js";
import { sql } from "../../../src/storage/postgres/sql.js";
import { createUsageStore } from "../../../src/usage/store.js";
import { appOptions } from "../../support/app-options.js";
import { openSchema, type Schema } from "../../support/schema.js";

const rows = 30_000;
const { quotas } = appOptions;

let schema: Schema;
/** Two workspaces. The second has the newer half of all keys and identities. The keys of the first have a permission. */
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
    insert into apis (api_id, workspace_id, name, created_at)
    select 'api_' || n, ${older}, 'empty', now() from generate_series(1, 5000) as n
    union all select 'api_of_few', ${younger}, 'few', now()
    union all select 'api_of_many', ${older}, 'many', now()`;
  await sql`
    insert into roles (role_id, workspace_id, name, permissions, created_at)
    select 'role_' || n, ${older}, 'role ' || n, '{other}', now() from generate_series(1, 5000) as n`;
  await sql`
    insert into keys (key_id, workspace_id, hash, start, enabled, permissions, api_id, identity_id, created_at, updated_at)
    select 'key_' || lpad(n::text, 26, '0'), ${workspace}, sha256(n::text::bytea), 'lk_test', n % 1000 <> 0,
      case when n <= ${rows / 2} then '{common,other}'::text[] else '{}' end,
      case when n <= ${rows / 2} then 'api_of_many' when n % 1000 = 1 then 'api_of_few' end, 'id_' || lpad(n::text, 26, '0'), now(), now()
    from generate_series(1, ${rows}) as n`;
  await sql`
    insert into permissions (permission_id, workspace_id, slug, name, created_at)
    select 'perm_' || workspace_id || slug, workspace_id, slug, slug, now()
    from workspaces, unnest(array['common', 'unused']) as slug`;
  disabled = await schema.insertWorkspace();
  await sql`
    insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)
    values ('id_owner', ${disabled}, 'owner', '{}', now(), now())`;
  await sql`
    insert into keys (key_id, workspace_id, hash, start, enabled, permissions, identity_id, created_at, updated_at)
    select 'key_x' || lpad(n::text, 25, '0'), ${disabled}, sha256(('x' || n)::bytea), 'lk_test', false, '{}', 'id_owner',
      now(), now()
    from generate_series(1, 12000) as n`;
  await sql`alter table audit_events set (autovacuum_enabled = false)`;
  // Those of one key of the first workspace, and then those of many keys of the second.
  await sql`
    insert into audit_events (event_id, workspace_id, type, actor, resource_id, request_id, at)
    select 'evt_' || n, case when n <= ${rows} then ${older} else ${younger} end, 'key.update', 'operator',
      case when n <= ${rows} then 'key_hot' else 'key_' || n / 20 end, 'req', now()
    from generate_series(1, ${2 * rows}) as n order by n`;
  await sql`alter table rate_limit_overrides set (autovacuum_enabled = false)`;
  // Half of them are of one workspace, and half are of one namespace, but few are of both.
  for (let tenant = 0; tenant < 15; tenant++) await insertOverrides(await schema.insertWorkspace(), "requests", 1000);
  for (let number = 0; number < 150; number++) await insertOverrides(younger, `namespace ${number}`, 100);
  await insertOverrides(younger, "requests", 10);
  await sql`alter table verification_counts set (autovacuum_enabled = false)`;
  // One key with many tags in many hours, and many keys without.
  const hour = sql`date_trunc('hour', now()) - n * interval '1 hour'`;
  await sql`
    insert into verification_counts
    select 'key_busy', case tag when 0 then '' else 'tag ' || tag end, ${hour}, ${older}, 1, 0, 0, 0, 0, 0
    from generate_series(0, 499) as n, generate_series(0, 50) as tag`;
  await sql`
    insert into verification_counts
    select 'key_' || lpad(key::text, 26, '0'), '', ${hour}, ${older}, 1, 0, 0, 0, 0, 0
    from generate_series(0, 9) as n, generate_series(1, 3000) as key`;
});
afterAll(() => schema.close());

async function insertOverrides(workspaceId: string, namespace: string, count: number): Promise<void> {
  await schema.sql`
    insert into rate_limit_overrides (override_id, workspace_id, namespace, identifier, "limit", duration, created_at)
    select 'ovr_' || gen_random_uuid(), ${workspaceId}, ${namespace}, 'user_' || n, 10, 1000, now()
    from generate_series(1, ${count}::integer) as n`;
}

/** The rows that were read, by index or sequentially. */
const rowsRead = sql<{ read: number }[]>`
  select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::float8 as read from pg_stat_user_tables
  where relname in ('keys', 'identities', 'apis', 'roles', 'audit_events', 'verification_counts',
    'rate_limit_overrides')`;

/** The same with the entries of indexes from which no row was read. */
const entriesRead = sql<{ read: number }[]>`
  select sum(read)::float8 as read from (
    select relname, seq_tup_read as read from pg_stat_user_tables
    union all select relname, idx_tup_read from pg_stat_user_indexes) as reads
  where relname in ('keys', 'identities', 'apis', 'roles', 'permissions')`;

/** A key with nothing but an id and a secret. */
const plainKey = (workspaceId: string): NewKey => ({
  keyId: mintId("key"),
  workspaceId,
  hash: mintSecret().hash,
  start: "lk_test",
  name: null,
  enabled: true,
  scopes: [],
  permissions: [],
  roles: [],
  apiId: null,
  ratelimits: [],
  credits: null,
  meta: null,
  expiresAt: null,
});

/** How many rows `work` reads, on one connection with this `plan_cache_mode`. */
async function countRowsRead(
  planCacheMode: string,
  work: (db: Database) => Promise<unknown>,
  { url, counter } = { url: schema.url, counter: rowsRead },
): Promise<number> {
  const parameters = { plan_cache_mode: planCacheMode };
  const db = openDatabase(url, { connections: 1, statementMs: 10_000, parameters });
  const readCounter = async () => {
    await db.runInBackground(sql`select pg_stat_force_next_flush()`);
    const [row] = await db.runInBackground(counter);
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
const operator = { actor: "operator", requestId: "req_of_the_plans", key: undefined };
const call = { requestId: "req_of_the_plans", deadline: Number.POSITIVE_INFINITY };
const all = { apiId: undefined, externalId: undefined, enabled: undefined };
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
    "the keys of an API",
    80,
    (db) => createKeysStore(db, quotas).listKeys(call, younger, { ...all, apiId: "api_of_few" }, first),
  ],
  [
    "the disabled keys of an API with thousands that are enabled",
    5_050,
    (db) => createKeysStore(db, quotas).listKeys(call, older, { ...all, apiId: "api_of_many", enabled: false }, first),
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

/** The workspaces have no ids before the tests begin. */
const listEvents =
  (workspaceId: () => string | undefined, resourceId?: string, after = "") =>
  (db: Database) =>
    createAuditStore(db).listEvents(call, { ...anyEvent, workspaceId: workspaceId(), resourceId }, { ...first, after });
const ofAll = () => undefined;
const ofOlder = () => older;
const ofYounger = () => younger;
const eventPages: typeof pages = [
  ["all events", 110, listEvents(ofAll)],
  ["the events of a workspace, of which all others are newer", 110, listEvents(ofOlder)],
  ["those after one of them", 112, listEvents(ofOlder, undefined, "evt_9000")],
  ["the events of a key with thousands", 112, listEvents(ofOlder, "key_hot")],
  ["those of the key after one of them", 114, listEvents(ofOlder, "key_hot", "evt_9000")],
  ["the same for the operator", 112, listEvents(ofAll, "key_hot", "evt_9000")],
  ["the events of a key with few", 30, listEvents(ofYounger, "key_1500")],
  ["the events of a key with thousands, for another workspace", 8, listEvents(ofYounger, "key_hot")],
  ["the events of a key that does not exist", 8, listEvents(ofYounger, "key_nowhere")],
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
    (db) => createKeysStore(db, quotas).listKeys(call, disabled, { ...all, enabled: true, externalId: "owner" }, first),
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

const busyPeriod = (hours: number) => ({
  from: new Date(Math.floor(Date.now() / 3_600_000 - hours) * 3_600_000),
  to: new Date(Date.now() + 3_600_000),
  granularity: "day" as const,
});
const usages: [name: string, maxRows: number, read: (db: Database) => Promise<readonly unknown[]>][] = [
  ["of the last day", 25, (db) => createUsageStore(db).readUsage(call, older, "key_busy", undefined, "")],
  ["of 400 hours", 402, (db) => createUsageStore(db).readUsage(call, older, "key_busy", busyPeriod(400), "")],
  ["with a tag", 402, (db) => createUsageStore(db).readUsage(call, older, "key_busy", busyPeriod(400), "tag 7")],
];

const requests = { namespace: "requests", identifier: "user_1" };
const overrides: [name: string, maxRows: number, work: (store: OverridesStore) => Promise<unknown>][] = [
  ["a read of all overrides", 12, (store) => store.readOverrides(younger, "requests")],
  ["a list of overrides", 12, (store) => store.listOverrides(call, younger, "requests", first)],
  ["a read of one override", 2, (store) => store.findOverride(call, { workspaceId: younger, ...requests })],
  [
    "a change of an override",
    16,
    (store) => store.setOverride(call, { workspaceId: younger, ...requests }, { limit: 1, duration: 1_000 }, operator),
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

  it.each([
    // A common slug of another workspace is another entry of the index.
    ["that only another workspace uses", "younger", "common", "deleted", 0],
    ["that nobody uses", "older", "unused", "deleted", 0],
    // One of the keys is enough, but the index returns all: their rows and their API are read up to a limit.
    ["that thousands of keys have", "older", "common", "in use", 2_000],
  ] as const)("the deletion of a permission %s reads few rows", async (_name, workspace, slug, result, maxRows) => {
    await schema.sql`analyze keys, permissions, roles`;
    const workspaceId = { younger, older }[workspace];
    const found: string[] = [];
    const read = await countRowsRead(planCacheMode, async (db) => {
      const store = createPermissionsStore(db, quotas);
      for (let run = 0; run < runs; run++) {
        found.push(await store.deletePermission(call, workspaceId, slug, operator));
        await schema.sql`
          insert into permissions (permission_id, workspace_id, slug, name, created_at)
          values (${`perm_${workspaceId}${slug}`}, ${workspaceId}, ${slug}, ${slug}, now()) on conflict do nothing`;
      }
    });
    await schema.sql`delete from pg_statistic where starelid in ('keys'::regclass, 'permissions'::regclass)`;
    expect(found).toEqual(Array(runs).fill(result));
    expect(read / runs).toBeLessThanOrEqual(maxRows);
  });

  it("the deletion of an API reads none of its keys without scopes", async () => {
    await schema.sql`analyze keys, apis`;
    const found: string[] = [];
    const read = await countRowsRead(planCacheMode, async (db) => {
      for (let run = 0; run < runs; run++) {
        found.push(await createApisStore(db, quotas).deleteApi(call, older, "api_of_many", operator));
        await db.runInBackground(sql`update apis set deleted_at = null where api_id = 'api_of_many'`);
      }
    });
    await schema.sql`delete from pg_statistic where starelid = 'keys'::regclass`;
    expect(found).toEqual(Array(runs).fill("deleted"));
    // The row of the API: to lock it, to update it, and to undo that.
    expect(read / runs).toBeLessThanOrEqual(5);
  });

  it.each(usages)("the usage %s reads one row for each hour, with or without planner statistics", async (...usage) => {
    const [, maxRows, readUsage] = usage;
    for (const analyze of [true, false]) {
      if (analyze) await schema.sql`analyze verification_counts`;
      else await schema.sql`delete from pg_statistic where starelid = 'verification_counts'::regclass`;
      let found = 0;
      const read = await countRowsRead(planCacheMode, async (db) => {
        for (let run = 0; run < runs; run++) found = (await readUsage(db)).length;
      });
      expect(found).toBeGreaterThan(0);
      expect(read / runs).toBeLessThanOrEqual(maxRows);
    }
  });

  it.each(overrides)("%s reads only the overrides of its namespace", async (_name, maxRows, work) => {
    for (const analyze of [true, false]) {
      if (analyze) await schema.sql`analyze rate_limit_overrides`;
      else await schema.sql`delete from pg_statistic where starelid = 'rate_limit_overrides'::regclass`;
      const read = await countRowsRead(planCacheMode, async (db) => {
        for (let run = 0; run < runs; run++) await work(createOverridesStore(db, quotas));
      });
      expect(read / runs).toBeGreaterThan(0);
      expect(read / runs, analyze ? "with statistics" : "without").toBeLessThanOrEqual(maxRows);
    }
  });

  it("counts of verifications are added without reading the counts of others or of other hours", async () => {
    const none = { valid: 1, rateLimited: 0, usageExceeded: 0, insufficientPermissions: 0, disabled: 0, expired: 0 };
    const rows = Array.from({ length: 500 }, (_, index) => ({
      resourceId: index < 100 ? "key_busy" : `key_${`${index}`.padStart(26, "0")}`,
      workspaceId: older,
      tag: index < 100 ? `tag ${index + 1}` : "",
      ...none,
    }));
    const counterId = randomUUID();
    const read = await countRowsRead(planCacheMode, async (db) => {
      for (let number = 1; number <= runs; number++) await createUsageStore(db).addCounts({ counterId, number, rows });
    });
    // Each of 100 tags reads its own row, and each new tag the other tags of the hour; then each row is updated.
    expect(read / runs).toBeLessThanOrEqual(500 + 100 + 100 * 100);
    expect(read / runs).toBeGreaterThan(0);
  });

  it.each(eventPages)("%s are read with or without planner statistics, and no others", async (_name, maxRows, list) => {
    for (const analyze of [true, false]) {
      if (analyze) await schema.sql`analyze audit_events`;
      else await schema.sql`delete from pg_statistic where starelid = 'audit_events'::regclass`;
      const read = await countRowsRead(planCacheMode, async (db) => {
        for (let run = 0; run < runs; run++) await list(db);
      });
      expect(read / runs, analyze ? "with statistics" : "without").toBeLessThanOrEqual(maxRows);
    }
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

describe("with many small workspaces and a large one", () => {
  const small = 5_000;
  const large = 10_000;
  let uneven: Schema;
  let workspaceId: string;

  beforeAll(async () => {
    uneven = await openSchema();
    workspaceId = await uneven.insertWorkspace();
    const { sql } = uneven;
    await sql`alter table keys set (autovacuum_enabled = false)`;
    await sql`
      insert into workspaces (workspace_id, name, created_at)
      select 'ws_' || n, 'small', now() from generate_series(1, ${small}::integer) as n`;
    const rows = sql`(
      select n, 'ws_' || n as workspace_id, lpad(n::text, 26, '0') as id from generate_series(1, ${small}::integer) as n
      union all
      select n, ${workspaceId}, 'x' || lpad(n::text, 25, '0') from generate_series(1, ${large}::integer) as n) as rows`;
    await sql`
      insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at)
      select 'id_' || id, workspace_id, 'user_' || n, '{}', now(), now() from ${rows}`;
    await sql`
      insert into roles (role_id, workspace_id, name, permissions, created_at)
      select 'role_' || id, workspace_id, 'role_' || n, '{}', now() from ${rows}`;
    await sql`
      insert into permissions (permission_id, workspace_id, slug, name, created_at)
      select 'perm_' || id, workspace_id, 'slug_' || n, 'named', now() from ${rows}`;
    // Most keys belong to one identity and one API. The few of another identity are among the last.
    await sql`
      insert into apis (api_id, workspace_id, name, created_at, deleted_at)
      select 'api_of_most', ${workspaceId}, 'most', now(), null::timestamptz
      union all select 'api_deleted' || n, ${workspaceId}, '', now(), now() from generate_series(1, 20) as n
      union all select 'api_' || id, workspace_id, 'empty', now(), null from ${rows}`;
    await sql`
      insert into keys (key_id, workspace_id, hash, start, enabled, permissions, api_id, identity_id, created_at, updated_at)
      select 'key_' || lpad(n::text, 26, '0'), ${workspaceId}, sha256(n::text::bytea), 'lk_test', true, '{}', 'api_of_most',
        case when n <= ${large - 3} then ${idOf("id", 1)} else ${idOf("id", 2)} end, now(), now()
      from generate_series(1, ${large}::integer) as n`;
    // After a vacuum, the planner prefers indexes that answer alone: for lookups a wrong one, for keys a right one.
    for (const table of ["identities", "roles", "permissions", "apis"]) await sql`vacuum analyze ${sql(table)}`;
    await sql`analyze keys`;
  });
  afterAll(() => uneven.close());

  const idOf = (prefix: string, number: number) => `${prefix}_x${`${number}`.padStart(25, "0")}`;
  const find = (db: Database, kind: IdentityReference["case"], value: string) =>
    createIdentitiesStore(db, quotas).findIdentity(call, workspaceId, { case: kind, value });
  const roleStore = (db: Database) => createRoleStore(db, quotas, createPermissionsStore(db, quotas));
  const ids = (rows: readonly { readonly roleId: string }[]) => rows.map(({ roleId }) => roleId);
  const lookups: [name: string, find: (db: Database) => Promise<unknown>, found: unknown][] = [
    [
      "a permission by its slug",
      async (db) =>
        (await createPermissionsStore(db, quotas).findPermission(call, workspaceId, "slug_700"))?.permissionId,
      idOf("perm", 700),
    ],
    [
      "a permission by its id",
      async (db) =>
        (await createPermissionsStore(db, quotas).findPermission(call, workspaceId, idOf("perm", 700)))?.permissionId,
      idOf("perm", 700),
    ],
    [
      "a role by its name",
      async (db) => (await roleStore(db).findRole(call, workspaceId, "role_700"))?.roleId,
      idOf("role", 700),
    ],
    [
      "a role by its id",
      async (db) => (await roleStore(db).findRole(call, workspaceId, idOf("role", 700)))?.roleId,
      idOf("role", 700),
    ],
    [
      "roles by their names",
      async (db) => ids(await roleStore(db).findRoles(call, workspaceId, ["role_700", "role_800"])),
      [idOf("role", 700), idOf("role", 800)],
    ],
    [
      "the roles of an import, by a name and an id",
      async (db) =>
        ids(
          (
            await createImportStore(db, quotas).readReferences(
              call,
              workspaceId,
              [],
              ["role_700", idOf("role", 800)],
              null,
            )
          ).roles,
        ),
      [idOf("role", 700), idOf("role", 800)],
    ],
    [
      "an identity by its externalId",
      async (db) => (await find(db, "externalId", "user_700"))?.identityId,
      idOf("id", 700),
    ],
    [
      "an identity by its externalId, which could be its id",
      async (db) => (await find(db, "identity", "user_700"))?.identityId,
      idOf("id", 700),
    ],
    [
      "an identity by its id, which could be its externalId",
      async (db) => (await find(db, "identity", idOf("id", 700)))?.identityId,
      idOf("id", 700),
    ],
    [
      "the keys of an identity with few",
      async (db) =>
        (await createKeysStore(db, quotas).listKeys(call, workspaceId, { ...all, externalId: "user_2" }, first)).rows
          .length,
      3,
    ],
  ];

  const runs = 8; // as above
  const readBy = async (planCacheMode: string, work: (db: Database) => Promise<unknown>) =>
    (await countRowsRead(planCacheMode, work, { url: uneven.url, counter: entriesRead })) / runs;

  describe.each(["force_custom_plan", "force_generic_plan", "auto"])("and %s", (planCacheMode) => {
    it.each(lookups)("%s: is found without reading the others", async (_name, find, expected) => {
      let found: unknown;
      const read = await readBy(planCacheMode, async (db) => {
        for (let run = 0; run < runs; run++) found = await find(db);
      });
      expect(found).toEqual(expected);
      expect(read).toBeLessThanOrEqual(20);
    });

    it("a key with a role and an owner is created without reading those of others", async () => {
      const read = await readBy(planCacheMode, async (db) => {
        for (let run = 0; run < runs; run++) {
          const key = { ...plainKey(workspaceId), roles: ["role_700"] };
          const identity = { identityId: mintId("id"), workspaceId, externalId: "user_900", meta: {}, ratelimits: [] };
          const owner = { kind: "named", identity } as const;
          expect(await createKeysStore(db, quotas).insertKey(call, key, owner, operator, undefined)).toBe(true);
        }
      });
      expect(read).toBeLessThanOrEqual(200);
    });

    it("the keys of deleted APIs without keys are not searched among all others", async () => {
      const read = await readBy(planCacheMode, async (db) => {
        for (let run = 0; run < runs; run++) {
          await db.runInBackground(sql`update apis set keys_deleted_at = null where keys_deleted_at is not null`);
          expect(await createRetentionStore(db).keysOfApis()).toEqual({ rows: 0, mayHaveMore: true });
        }
      });
      // The rows of the APIs, and their earlier versions from the other runs.
      expect(read).toBeLessThanOrEqual(3_000);
    });
  });

  it("deleted APIs and identities without keys are removed without reading the keys of others", async () => {
    // Not with generic plans: PostgreSQL itself would read all keys to check their references. It uses custom plans for that.
    const read = await readBy("auto", async (db) => {
      for (let run = 0; run < runs; run++) {
        const retention = createRetentionStore(db);
        await db.runInBackground(sql`
          insert into apis (api_id, workspace_id, name, created_at, deleted_at, keys_deleted_at)
          select 'api_removed' || n, ${workspaceId}, '', now(), now(), now() from generate_series(1, 20) as n`);
        await db.runInBackground(sql`
          insert into identities (identity_id, workspace_id, external_id, meta, created_at, updated_at, deleted_at)
          select 'id_removed' || n, ${workspaceId}, '', '{}', now(), now(), now() from generate_series(1, 20) as n`);
        expect(await retention.apis(-1_000)).toMatchObject({ rows: run === 0 ? 40 : 20 });
        expect(await retention.identities(-1_000)).toMatchObject({ rows: 20 });
      }
    });
    expect(read).toBeLessThanOrEqual(3_000);
  });
});
