import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import type postgres from "postgres";
import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { migrateDatabase } from "../../../src/app.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { disable, enable, listKeys, listKeysGrpc, redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { openOwnPostgres } from "../../support/own-postgres.js";
import { openProxy } from "../../support/proxy.js";
import {
  type CachedWorkspace,
  createCachedWorkspace,
  keyEntryOf,
  workspaceEntryOf,
} from "../../support/redis-entries.js";

const soon = { timeout: 20_000 };

interface Server {
  readonly url: string;
  readonly sql: postgres.Sql;
}

/** Two servers with the schema. The second can subscribe to the tables of the first, as in docs/operations/upgrade.md. */
interface Pair {
  readonly old: Server;
  readonly next: Server;
  subscribe(options?: string): Promise<void>;
  /** Waits until the subscriber has everything that was committed before this call. */
  caughtUp(): Promise<void>;
  unsubscribe(): Promise<void>;
  /** Prepares the subscriber for replicas. */
  prepare(): Promise<void>;
  close(): Promise<void>;
}

/** @param transactions how many transaction ids each server has assigned */
async function openPair(transactions: Record<"old" | "next", number>): Promise<Pair> {
  const undo: (() => Promise<void>)[] = [];
  const open = async (count: number): Promise<Server> => {
    const { url, close } = await openOwnPostgres({ wal_level: "logical" });
    undo.push(close);
    const sql = openSql(url, { max: 1, onnotice: () => {} });
    undo.push(() => sql.end({ timeout: 1 }));
    await sql.unsafe(`do $$ begin for i in 1..${count} loop perform pg_current_xact_id(); commit; end loop; end $$`);
    await migrateDatabase(url);
    return { url, sql };
  };
  const old = await open(transactions.old);
  const next = await open(transactions.next);
  await old.sql`alter table removals replica identity full`;
  await old.sql`create publication latchkey for all tables`;
  await next.sql`truncate cluster_state, migrations`; // as a dump of the schema leaves them

  // Over a port: the server of the subscription may not access the socket of the other one.
  const link = await openProxy(old.url);
  undo.push(link.close);
  return {
    old,
    next,
    async subscribe(options = "copy_data = true") {
      await next.sql.unsafe(
        `create subscription latchkey connection '${link.url}' publication latchkey with (${options})`,
      );
      const unready = async () => next.sql`select from pg_subscription_rel where srsubstate <> 'r'`;
      await expect.poll(async () => (await unready()).length, soon).toBe(0);
    },
    async caughtUp() {
      const [end] = await old.sql<{ lsn: string }[]>`select pg_current_wal_lsn()::text as lsn`;
      const confirmed = async () => old.sql`
        select from pg_replication_slots where slot_name = 'latchkey' and confirmed_flush_lsn >= ${end?.lsn ?? ""}::pg_lsn`;
      await expect.poll(async () => (await confirmed()).length, soon).toBe(1);
    },
    async unsubscribe() {
      await next.sql`drop subscription latchkey`;
    },
    async prepare() {
      await next.sql`select rotate_cache_secret()`;
      await next.sql`
        select setval(pg_get_serial_sequence('audit_events', 'position'), (select max(position) from audit_events))`;
    },
    async close() {
      for (const step of undo.reverse()) await step();
    },
  };
}

/** The entries that Redis had of a workspace and its key, as arguments of MSET. */
const entriesOf = ({ key, keyEntry, workspaceId, workspaceEntry }: CachedWorkspace) => [
  keyEntryOf(key),
  keyEntry,
  workspaceEntryOf(workspaceId),
  workspaceEntry,
];

/** The outcomes of calls with a key over HTTP and gRPC. */
const outcomesOf = async (app: TestApp, key: string) => [
  (await listKeys(app, key)).status,
  await listKeysGrpc(app, key),
];
const accepted = [200, "OK"];
const refused = [403, "PERMISSION_DENIED"];
const unavailable = [503, "UNAVAILABLE"];

async function nextId({ sql }: Server): Promise<number> {
  const [row] = await sql`select pg_snapshot_xmax(pg_current_snapshot())::text::float8 as id`;
  return row?.["id"];
}

const order = [
  { ids: "lower", transactions: { old: 5_000, next: 0 } },
  { ids: "higher", transactions: { old: 0, next: 20_000 } },
];

describe.each(order)("with a subscriber whose transaction ids are $ids", ({ ids, transactions }) => {
  let pair: Pair;
  let redis: Redis;
  const opened: TestApp[] = [];
  const openReplica = async (server: Server): Promise<TestApp> => {
    const app = await openTestApp({ databaseUrl: server.url });
    opened.push(app);
    await redisInUse(app);
    return app;
  };

  beforeEach(async () => {
    redis = new Redis(inject("redisUrl"));
    pair = await openPair(transactions);
    const isLower = (await nextId(pair.next)) < (await nextId(pair.old));
    expect(isLower).toBe(ids === "lower");
  }, 60_000);
  afterEach(async () => {
    for (const app of opened.splice(0)) await app.close();
    await pair?.close();
    redis.disconnect();
  });

  it("revocation holds after the switch, whatever Redis has from before, and no replica starts earlier", async () => {
    const before = await openReplica(pair.old);
    const active = await createCachedWorkspace(before, redis);
    const revoked = await createCachedWorkspace(before, redis);
    const replay = () => redis.mset(...[active, revoked].flatMap(entriesOf));
    await pair.subscribe();
    await disable(before, revoked.workspaceId);
    await disable(before, active.workspaceId);
    await enable(before, active.workspaceId);
    await expect(openTestApp({ databaseUrl: pair.next.url })).rejects.toMatchObject({
      name: "UserError",
      message: expect.stringMatching(/logical replication.*docs\/operations\/upgrade\.md#logical-replication/),
    });
    await before.close();
    await pair.caughtUp();
    await pair.unsubscribe();
    await pair.prepare();
    await replay();

    const [one, other] = [await openReplica(pair.next), await openReplica(pair.next)];
    for (const app of [one, other]) {
      expect(await outcomesOf(app, revoked.key)).toEqual(refused);
      expect(await outcomesOf(app, active.key)).toEqual(accepted);
    }
    await disable(one, active.workspaceId);
    await replay();
    for (const app of [other, one]) expect(await outcomesOf(app, active.key)).toEqual(refused);
    await enable(other, active.workspaceId);
    for (const app of [one, other]) expect(await outcomesOf(app, active.key)).toEqual(accepted);
  }, 90_000);

  it("a running replica whose tables become subscribed accepts no key any more until it is restarted", async () => {
    const before = await openReplica(pair.old);
    const { workspaceId, key } = await createWorkspace(before.httpUrl);
    await pair.subscribe();
    await pair.unsubscribe();
    await pair.prepare();
    const running = await openReplica(pair.next);
    expect(await outcomesOf(running, key)).toEqual(accepted);

    await pair.subscribe("copy_data = false");
    await expect.poll(() => outcomesOf(running, key), soon).toEqual(unavailable);
    await disable(before, workspaceId);
    await pair.caughtUp();
    await pair.unsubscribe();
    await sleep(1_000); // several polls
    expect(await outcomesOf(running, key)).toEqual(unavailable);
    await pair.prepare();
    const restarted = await openReplica(pair.next);
    expect(await outcomesOf(restarted, key)).toEqual(refused);
  }, 90_000);
});
