import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type Database, openDatabase } from "../../../src/storage/postgres/database.js";
import { type CountRow, createUsageStore, type UsageStore } from "../../../src/usage/store.js";
import { openSchema, type Schema } from "../../support/schema.js";

const call = { requestId: "req_of_the_counts", deadline: Number.POSITIVE_INFINITY };
const workspaceId = "ws_1";

let schema: Schema;
/** One connection for each process that stores counts. */
let processes: Database[];
let stores: UsageStore[];
let store: UsageStore;

beforeAll(async () => {
  schema = await openSchema();
  processes = Array.from({ length: 4 }, () => openDatabase(schema.url, { connections: 1, statementMs: 10_000 }));
  stores = processes.map(createUsageStore);
  [store] = stores as [UsageStore];
});
afterAll(async () => {
  await Promise.all(processes.map((process) => process.close()));
  await schema.close();
});
beforeEach(() => schema.sql`truncate verification_counts, verification_counters, verification_tags`);

function row(resourceId: string, fields: Partial<CountRow> = {}): CountRow {
  const none = { valid: 0, rateLimited: 0, usageExceeded: 0, insufficientPermissions: 0, disabled: 0, expired: 0 };
  return { resourceId, workspaceId, tag: "", ...none, valid: 1, ...fields };
}

/** The stored VALID verifications of a resource, over all hours: the hour may change during the test. */
async function validOf(resourceId: string, tag = ""): Promise<number> {
  const rows = await store.readUsage(call, workspaceId, resourceId, undefined, tag);
  return rows.reduce((sum, { valid }) => sum + Number(valid), 0);
}

async function tagsOf(resourceId: string): Promise<string[]> {
  const rows = await schema.sql<{ tag: string }[]>`
    select distinct tag from verification_counts where resource_id = ${resourceId} and tag > '' order by tag`;
  return rows.map(({ tag }) => tag);
}

describe("a batch of counts is added once", () => {
  it("however often it is sent, also at the same time", async () => {
    const batch = { counterId: randomUUID(), number: 1, rows: [row("key_a"), row("key_b", { valid: 5 })] };
    await store.addCounts(batch);
    await Promise.all(stores.flatMap(({ addCounts }) => [addCounts(batch), addCounts(batch)]));
    expect([await validOf("key_a"), await validOf("key_b")]).toEqual([1, 5]);
    await store.addCounts({ ...batch, number: 2 });
    expect([await validOf("key_a"), await validOf("key_b")]).toEqual([2, 10]);
  });

  it("also if an earlier attempt is still running when it is sent again", async () => {
    await store.addCounts({ counterId: randomUUID(), number: 1, rows: [row("key_a")] });
    const batch = { counterId: randomUUID(), number: 1, rows: [row("key_a"), row("key_b")] };
    let attempts: Promise<void>[] = [];
    await schema.sql.begin(async (sql) => {
      await sql`select from verification_counts where resource_id = 'key_a' for update`;
      attempts = stores.map(({ addCounts }) => addCounts(batch));
      await expect
        .poll(async () => {
          const [waiting] = await schema.sql<{ count: number }[]>`
            select count(*)::float8 as count from pg_stat_activity
            where wait_event_type = 'Lock' and datname = current_database()`;
          return waiting?.count;
        })
        .toBe(stores.length);
    });
    await Promise.all(attempts);
    expect([await validOf("key_a"), await validOf("key_b")]).toEqual([2, 1]);
  });

  it("batches of other processes with the same number are others", async () => {
    await Promise.all(
      stores.map(({ addCounts }) => addCounts({ counterId: randomUUID(), number: 1, rows: [row("key_a")] })),
    );
    expect(await validOf("key_a")).toBe(stores.length);
  });
});

it("processes that store counts of the same keys in another order do not block each other (no deadlock)", async () => {
  const deadlocks = async () => {
    await sleep(200); // PostgreSQL reports statistics with a delay
    const [found] = await schema.sql<{ deadlocks: number }[]>`
      select deadlocks::float8 from pg_stat_database where datname = current_database()`;
    return found?.deadlocks;
  };
  const before = await deadlocks();
  const rows = Array.from({ length: 200 }, (_, key) => row(`key_${key}`, { tag: key % 2 === 0 ? "" : `tag ${key}` }));
  const rounds = 15;
  await Promise.all(
    stores.map(async ({ addCounts }, process) => {
      const counterId = randomUUID();
      for (let number = 1; number <= rounds; number++) {
        const shuffled = [...rows].sort(() => Math.random() - 0.5);
        await addCounts({ counterId, number, rows: process % 2 === 0 ? shuffled : rows.toReversed() });
      }
    }),
  );
  expect(await validOf("key_0")).toBe(stores.length * rounds);
  expect(await validOf("key_1", "tag 1")).toBe(stores.length * rounds);
  expect(await deadlocks()).toBe(before);
});

/** A test must not begin in one hour and end in the next. */
async function withinOneHour(): Promise<void> {
  const msLeft = 3_600_000 - (Date.now() % 3_600_000);
  if (msLeft < 20_000) await sleep(msLeft);
}

describe("a key or an identity has at most 100 tags in an hour", () => {
  beforeEach(withinOneHour, 30_000);

  const tagged = (from: number, count: number) =>
    Array.from({ length: count }, (_, index) => row("key_a", { tag: `tag ${`${from + index}`.padStart(3, "0")}` }));

  it("later ones are left out, and those that are known are still counted", async () => {
    const counterId = randomUUID();
    await store.addCounts({ counterId, number: 1, rows: [row("key_a"), ...tagged(0, 60)] });
    await store.addCounts({ counterId, number: 2, rows: [row("key_a"), ...tagged(30, 60)] });
    expect(await tagsOf("key_a")).toHaveLength(90);
    await store.addCounts({
      counterId,
      number: 3,
      rows: [row("key_a"), ...tagged(0, 200), row("key_b", { tag: "b" })],
    });
    expect(await tagsOf("key_a")).toHaveLength(100);
    await store.addCounts({ counterId, number: 4, rows: [row("key_a"), ...tagged(0, 200)] });
    expect(await tagsOf("key_a")).toHaveLength(100);
    expect(await validOf("key_a")).toBe(4);
    expect(await validOf("key_a", "tag 050")).toBe(4);
    expect(await tagsOf("key_b")).toEqual(["b"]);
  });

  it("processes that add tags at the same moment exceed that number at most once", async () => {
    const counters = stores.map(({ addCounts }) => ({ addCounts, counterId: randomUUID() }));
    for (let number = 1; number <= 5; number++) {
      await Promise.all(
        counters.map(({ addCounts, counterId }, process) =>
          addCounts({ counterId, number, rows: tagged(1_000 * process + 100 * number, 100) }),
        ),
      );
    }
    expect((await tagsOf("key_a")).length).toBeGreaterThanOrEqual(100);
    expect((await tagsOf("key_a")).length).toBeLessThanOrEqual(100 * stores.length);
  });
});

describe("a workspace has at most 10,000 counts of tags in an hour", () => {
  beforeEach(withinOneHour, 30_000);

  /** 5 keys with 99 tags each, and a total of each key. */
  const batchOf = (number: number, workspace = workspaceId): CountRow[] =>
    Array.from({ length: 500 }, (_, index) => {
      const tag = index % 100 === 0 ? "" : `tag ${index % 100}`;
      return row(`key_${workspace}_${number}_${Math.floor(index / 100)}`, { tag, workspaceId: workspace });
    });
  const rowsOf = async (workspace: string) => {
    const [found] = await schema.sql<{ tags: number; totals: number }[]>`
      select count(*) filter (where tag <> '')::int as tags, count(*) filter (where tag = '')::int as totals
      from verification_counts where workspace_id = ${workspace}`;
    return found;
  };

  it("whatever the number of its keys and of the processes; verifications with others are counted without them", async () => {
    const each = 8;
    await Promise.all(
      stores.map(async ({ addCounts }, process) => {
        const counterId = randomUUID();
        for (let number = 1; number <= each; number++) {
          await addCounts({ counterId, number, rows: batchOf(each * process + number) });
        }
      }),
    );
    expect(await rowsOf(workspaceId)).toEqual({ tags: 10_000, totals: 5 * each * stores.length });

    // Known ones are still counted, and other workspaces have counts of their own.
    const counterId = randomUUID();
    await store.addCounts({ counterId, number: 1, rows: [...batchOf(1), ...batchOf(999), ...batchOf(1, "ws_2")] });
    expect(await validOf(`key_${workspaceId}_1_0`, "tag 1")).toBe(2);
    expect(await validOf(`key_${workspaceId}_999_0`)).toBe(1);
    expect(await rowsOf(workspaceId)).toMatchObject({ tags: 10_000 });
    expect(await rowsOf("ws_2")).toEqual({ tags: 495, totals: 5 });

    // An hour passes.
    await schema.sql`update verification_counts set hour = hour - interval '1 hour'`;
    await schema.sql`update verification_tags set hour = hour - interval '1 hour'`;
    await store.addCounts({ counterId, number: 2, rows: batchOf(999) });
    expect(await rowsOf(workspaceId)).toMatchObject({ tags: 10_495 });
  });
});

it("counts that a client makes up cannot exceed the largest number that the database can add", async () => {
  const counterId = randomUUID();
  const rows = [row("key_a", { valid: 1e14, disabled: 1e14, expired: 1e14 })];
  for (let number = 1; number <= 3; number++) await store.addCounts({ counterId, number, rows });
  const [part] = await store.readUsage(call, workspaceId, "key_a", undefined, "");
  expect(part).toMatchObject({ valid: BigInt(1e14), disabled: BigInt(1e14) });
});

it("tags and texts that look like SQL or JSON are stored as they are", async () => {
  const tags = ["'; drop table keys; --", '{"a": [1, "\\u0041"]}', "日本語 \u{1f5dd}", "a,b\\c", "x".repeat(128)];
  await store.addCounts({ counterId: randomUUID(), number: 1, rows: tags.map((tag) => row("key_a", { tag })) });
  for (const tag of tags) expect(await validOf("key_a", tag), tag).toBe(1);
});

it("the counts of another workspace are not returned", async () => {
  await store.addCounts({ counterId: randomUUID(), number: 1, rows: [row("key_a")] });
  expect(await store.readUsage(call, "ws_2", "key_a", undefined, "")).toEqual([]);
});
