import { setTimeout as sleep } from "node:timers/promises";
import type postgres from "postgres";
import { afterAll, beforeAll, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { type CallOutcome, callGrpc, callHttp } from "../../support/clients/timed-calls.js";
import { createDatabase, openTestApp, type TestApp } from "../../support/harness.js";
import { readMetric } from "../../support/metrics.js";

/** More changes than connections, from more workspaces than can have a share of them. */
const changeCount = 15;
const workspaceCount = 5;

/** Of ten connections, one each is reserved for lookups, revocations and the operator. */
const ordinaryConnections = 7;

let database: Awaited<ReturnType<typeof createDatabase>>;
let sql: postgres.Sql;
let app: TestApp;
let keys: string[];

beforeAll(async () => {
  database = await createDatabase();
  sql = openSql(database.url, { max: 2, onnotice: () => {} });
  app = await openTestApp({ databaseUrl: database.url, metricsPort: 0 });
  const created = await Promise.all(Array.from({ length: workspaceCount }, () => createWorkspace(app.httpUrl)));
  keys = created.map(({ key }) => key);
});
afterAll(async () => {
  await app?.close();
  await sql?.end({ timeout: 1 });
  await database.drop();
});

const outcomes = async (calls: readonly Promise<CallOutcome>[]) =>
  (await Promise.all(calls)).map(({ outcome }) => outcome);
const busyCount = () => readMetric(app, "pool_connections", { state: "busy" });
const sessionCount = () =>
  sql`select from pg_stat_activity where application_name = 'latchkey' and datname = current_database()`.then(
    ({ count }) => count,
  );

it("pool exhausted by locks: cached keys are verified, deadlines hold, and waiters are served afterwards", async () => {
  const waiting: Promise<CallOutcome>[] = [];
  const [key, ...others] = keys as [string, ...string[]];
  const keyOf = (index: number) => others[index % others.length] as string;
  await sql.begin(async (holder) => {
    await holder`lock table audit_events in access exclusive mode`;
    const startChange = (count: number) =>
      waiting.push((count % 2 ? callHttp : callGrpc)(app, "createKey", keyOf(count), { name: `${count}` }));
    for (let count = 0; count < ordinaryConnections; count++) startChange(count);
    await expect.poll(busyCount, { timeout: 5_000 }).toBe(ordinaryConnections);

    expect(await outcomes([callHttp, callGrpc].map((call) => call(app, "verifyKey", key, { key })))).toEqual([
      "OK",
      "OK",
    ]);
    const late = await callGrpc(app, "listKeys", key, {}, 300);
    expect(late.outcome).toMatch(/^(DEADLINE_EXCEEDED|UNAVAILABLE)$/);
    expect(late.ms).toBeLessThan(2_000);
    expect((await listOverConnect(key, 300)).error).toMatch(/^(deadline_exceeded|unavailable)$/);

    // Not earlier: a waiter in a stuck acquire queue is shed after a second.
    for (let count = ordinaryConnections; count < changeCount; count++) startChange(count);
    await sleep(100);
  });

  expect(await outcomes(waiting)).toEqual(Array(changeCount).fill("OK"));
  expect(await outcomes([callHttp(app, "listKeys", key), callGrpc(app, "listKeys", key)])).toEqual(["OK", "OK"]);
  await expect.poll(busyCount).toBe(0);
  expect(await readMetric(app, "pool_waiting_statements")).toBe(0);
  expect(await sessionCount()).toBeLessThanOrEqual(11);
});

/** On the HTTP port, Connect clients can set deadlines. */
async function listOverConnect(key: string, timeoutMs: number): Promise<{ error: string }> {
  const response = await fetch(`${app.httpUrl}/latchkey.v1.KeysService/ListKeys`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${key}`,
      "content-type": "application/json",
      "connect-timeout-ms": `${timeoutMs}`,
    },
    body: "{}",
  });
  const { code } = (await response.json()) as { code: string };
  return { error: code };
}
