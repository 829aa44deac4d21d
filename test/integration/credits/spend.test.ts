import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import type { Call } from "../../../src/call/call.js";
import { createCreditSpender, spenderPool, spenderSettings } from "../../../src/credits/spender.js";
import { createCreditsStore, isTooLate, type Spend } from "../../../src/credits/store.js";
import { type Database, openDatabase } from "../../../src/storage/postgres/database.js";
import { insertCredits, storedCredits } from "../../support/credit-rows.js";
import { createDatabase } from "../../support/harness.js";
import { startStopwatch } from "../../support/stopwatch.js";
import { createRandom } from "../../verification/faults/random.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
let sql: postgres.Sql;
/** The connections of two replicas. */
let replicas: Database[];

beforeAll(async () => {
  database = await createDatabase(inject("template"));
  sql = openSql(database.url, { max: 2, onnotice: () => {} });
  replicas = [openDatabase(database.url, spenderPool), openDatabase(database.url, spenderPool)];
});
afterAll(async () => {
  for (const replica of replicas) await replica.close();
  await sql.end();
  await database.drop();
});

const noDeadline = () => new Date("9999-12-31");
const storeOf = (replica: number) => createCreditsStore(replicas[replica] as Database, noDeadline);
const spenderOf = (replica: number, settings = spenderSettings) => {
  const spender = createCreditSpender(storeOf(replica), () => {}, settings);
  return {
    spend: async (call: Call, keyId: string, cost: number) =>
      (await spender.spend(call, keyId, cost, () => true)) ?? expect.fail("the spend was left out"),
  };
};
const callOf = (workspaceId: string): Call => ({
  requestId: "req_test",
  deadline: Number.POSITIVE_INFINITY,
  workspaceId,
});

/** Spends on several keys in one statement, in this order. */
const spend = (...spends: (readonly [keyId: string, cost: number])[]) =>
  storeOf(0).spend(
    spends.map(([keyId, cost]): Spend => ({ keyId, cost })),
    spenderSettings.lockWaitMs,
  );

describe("one statement", () => {
  it("makes the spends of a key in their order, each as a whole or not at all", async () => {
    await insertCredits(sql, "ws_order", { order_a: 10, order_b: 3 });
    const outcomes = await spend(
      ["order_b", 2],
      ["order_a", 7],
      ["order_a", 4],
      ["order_b", 2],
      ["order_a", 3],
      ["order_a", 1],
      ["order_b", 1],
      ["order_b", 0],
    );
    expect(outcomes).toEqual([
      { spent: true, remaining: 1 },
      { spent: true, remaining: 3 },
      { spent: false, remaining: 3 },
      { spent: false, remaining: 1 },
      { spent: true, remaining: 0 },
      { spent: false, remaining: 0 },
      { spent: true, remaining: 0 },
      { spent: true, remaining: 0 },
    ]);
    expect(await storedCredits(sql, "order_a", "order_b")).toEqual({ order_a: 0, order_b: 0 });
  });

  it("spends on a thousand keys, and returns the outcome of each", async () => {
    const ids = Array.from({ length: 1_000 }, (_, index) => `many_${String(index).padStart(4, "0")}`);
    await insertCredits(sql, "ws_many", Object.fromEntries(ids.map((id, index) => [id, index % 3])));
    const outcomes = await spend(...ids.toReversed().map((id) => [id, 1] as const));
    const before = ids.map((_, index) => index % 3).toReversed();
    expect(outcomes).toEqual(before.map((had) => ({ spent: had > 0, remaining: Math.max(0, had - 1) })));
    const stored = await storedCredits(sql, ...ids);
    expect(Object.values(stored)).toEqual(before.toReversed().map((had) => Math.max(0, had - 1)));
  });

  it("spends nothing on a key that needs no credits any more, and says so; of an unknown key, it says nothing", async () => {
    await insertCredits(sql, "ws_none", { none_a: null, none_b: 2 });
    expect(await spend(["none_a", 5], ["none_c", 1], ["none_b", 1], ["none_a", 5])).toEqual([
      { spent: true, remaining: undefined },
      undefined,
      { spent: true, remaining: 1 },
      { spent: true, remaining: undefined },
    ]);
  });

  it("applies a due refill before it spends, and once", async () => {
    await insertCredits(sql, "ws_refill", { refill_a: 0, refill_b: 500, refill_c: 0 });
    await sql`
      update key_credits set refill_interval = 'daily', refill_amount = 100, refilled_at = now() - interval '40 days'
      where key_id in ('refill_a', 'refill_b')`;
    await sql`
      update key_credits set refill_interval = 'daily', refill_amount = 100, refilled_at = now() where key_id = 'refill_c'`;
    expect(await spend(["refill_a", 60], ["refill_b", 60], ["refill_c", 1])).toEqual([
      { spent: true, remaining: 40 },
      { spent: true, remaining: 440 },
      { spent: false, remaining: 0 },
    ]);
    expect(await spend(["refill_a", 60], ["refill_a", 40])).toEqual([
      { spent: false, remaining: 40 },
      { spent: true, remaining: 0 },
    ]);
    const [row] = await sql<{ at: string }[]>`
      select to_char(refilled_at at time zone 'UTC', 'HH24:MI:SS.MS') as at from key_credits where key_id = 'refill_a'`;
    expect(row?.at).toBe("00:00:00.000");
  });

  it("that begins after its deadline, e.g. because it was delayed on its way, spends nothing", async () => {
    await insertCredits(sql, "ws_late", { late_a: 5 });
    const spendUntil = (deadline: number) =>
      createCreditsStore(replicas[0] as Database, () => new Date(deadline)).spend([{ keyId: "late_a", cost: 1 }], 0);
    await expect(spendUntil(Date.now() - 60_000)).rejects.toSatisfy(isTooLate);
    expect(await storedCredits(sql, "late_a")).toEqual({ late_a: 5 });
    expect(await spendUntil(Date.now() + 60_000)).toEqual([{ spent: true, remaining: 4 }]);
  });

  it("writes only the rows that change", async () => {
    await insertCredits(sql, "ws_idle", { idle_a: 0, idle_b: 1 });
    const version = async () =>
      (await sql<{ at: string }[]>`select ctid::text as at from key_credits where key_id like 'idle%' order by 1`).map(
        ({ at }) => at,
      );
    const before = await version();
    await spend(["idle_a", 1], ["idle_b", 2], ["idle_b", 0]);
    expect(await version()).toEqual(before);
  });
});

describe("spends of two replicas", () => {
  it("on the same keys, in opposite orders, lose nothing, exceed nothing and do not deadlock", async () => {
    const ids = Array.from({ length: 20 }, (_, index) => `both_${String(index).padStart(2, "0")}`);
    await insertCredits(sql, "ws_both", Object.fromEntries(ids.map((id) => [id, 150])));
    const random = createRandom(17);
    const spent: Record<string, number> = Object.fromEntries(ids.map((id) => [id, 0]));
    const elapsed = startStopwatch();
    const work = [0, 1].flatMap((replica) => {
      const spender = spenderOf(replica);
      const order = replica === 0 ? ids : ids.toReversed();
      return order.flatMap((id) =>
        Array.from({ length: 60 }, async () => {
          const cost = Math.floor(random.between(1, 5));
          const outcome = await spender.spend(callOf("ws_both"), id, cost);
          expect(outcome.remaining).toBeGreaterThanOrEqual(0);
          if (outcome.spent) spent[id] = (spent[id] ?? 0) + cost;
        }),
      );
    });
    await Promise.all(work);
    const stored = await storedCredits(sql, ...ids);
    for (const id of ids) expect((stored[id] ?? Number.NaN) + (spent[id] ?? 0), id).toBe(150);
    // A deadlock is detected after a second.
    expect(elapsed()).toBeLessThan(20_000);
    const [row] = await sql<{ deadlocks: number }[]>`
      select deadlocks::int from pg_stat_database where datname = current_database()`;
    expect(row?.deadlocks).toBe(0);
  });
});

describe("while a transaction keeps the row of one key locked", () => {
  it("the spends of other workspaces take little longer, and those of the key succeed once it ends", async () => {
    await insertCredits(sql, "ws_locked", { locked_a: 100 });
    await insertCredits(sql, "ws_others", { locked_b: 1_000 });
    const spender = spenderOf(0);
    let unlock = () => {};
    const ended = new Promise<void>((resolve) => {
      unlock = resolve;
    });
    const locking = sql.begin(async (transaction) => {
      await transaction`select from key_credits where key_id = 'locked_a' for update`;
      await ended;
    });
    await expect.poll(async () => (await storeOf(1).spend([{ keyId: "locked_a", cost: 0 }], 0))[0]).toBeUndefined();
    const locked = Array.from({ length: 10 }, () => spender.spend(callOf("ws_locked"), "locked_a", 1));
    const times: number[] = [];
    for (let round = 0; round < 20; round++) {
      const elapsed = startStopwatch();
      await spender.spend(callOf("ws_others"), "locked_b", 1);
      times.push(elapsed());
    }
    unlock();
    await locking;
    const outcomes = await Promise.all(locked);
    expect(outcomes.map(({ remaining }) => remaining)).toEqual([99, 98, 97, 96, 95, 94, 93, 92, 91, 90]);
    // Only the first ones wait, for as long as a statement waits for a locked row.
    expect(times.filter((ms) => ms >= spenderSettings.lockWaitMs).length).toBeLessThanOrEqual(2);
    expect(Math.max(...times)).toBeLessThan(spenderSettings.separateLockWaitMs);
  });

  it("its spends fail in the end, and spend nothing", async () => {
    await insertCredits(sql, "ws_hung", { hung_a: 100 });
    const spender = spenderOf(0, { ...spenderSettings, separateLockWaitMs: 200 });
    await sql.begin(async (transaction) => {
      await transaction`select from key_credits where key_id = 'hung_a' for update`;
      await expect(spender.spend(callOf("ws_hung"), "hung_a", 1)).rejects.toMatchObject({ code: "55P03" });
    });
    expect(await storedCredits(sql, "hung_a")).toEqual({ hung_a: 100 });
    expect(await spender.spend(callOf("ws_hung"), "hung_a", 1)).toEqual({ spent: true, remaining: 99 });
  });
});

it("a spend reads no more than its row, also if its plan was made while the table was small", async () => {
  // A database of its own: sessions report what they have done with a delay.
  const other = await createDatabase(inject("template"));
  const own = openSql(other.url, { max: 1, onnotice: () => {} });
  const replica = openDatabase(other.url, spenderPool);
  try {
    const store = createCreditsStore(replica, noDeadline);
    await insertCredits(own, "ws_plan", { plan_a: 1_000 });
    const one = [{ keyId: "plan_a", cost: 1 }];
    // PostgreSQL decides after five executions whether it plans anew for each of them.
    for (let round = 0; round < 10; round++) await store.spend(one, spenderSettings.lockWaitMs);
    const ids = Array.from({ length: 20_000 }, (_, index) => `plan_${index}`);
    await insertCredits(own, "ws_plan", Object.fromEntries(ids.map((id) => [id, 1])));
    for (let round = 0; round < 10; round++) await store.spend(one, spenderSettings.lockWaitMs);
    await replica.close();
    const scans = async () => {
      const [row] = await own<{ whole: number; byIndex: number }[]>`
        select seq_scan::int as whole, idx_scan::int as "byIndex" from pg_stat_user_tables where relname = 'key_credits'`;
      return row;
    };
    await expect.poll(async () => (await scans())?.byIndex, { timeout: 10_000 }).toBeGreaterThanOrEqual(20);
    expect((await scans())?.whole).toBe(0);
  } finally {
    await own.end();
    await other.drop();
  }
});
