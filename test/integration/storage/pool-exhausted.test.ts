import { setTimeout as sleep } from "node:timers/promises";
import type postgres from "postgres";
import { afterAll, beforeAll, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { type Answered, callGrpc, callHttp } from "../../support/answered.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { createDatabase, openTestApp, type TestApp } from "../../support/harness.js";
import { readMetric } from "../../support/metrics.js";

/** More than there are connections, from more workspaces than have a share of them. */
const many = 15;
const workspaces = 5;

/** Of ten connections, one each is kept for lookups, revocations and the operator. */
const ordinary = 7;

let database: Awaited<ReturnType<typeof createDatabase>>;
let sql: postgres.Sql;
let app: TestApp;
let keys: string[];

beforeAll(async () => {
  database = await createDatabase();
  sql = openSql(database.url, { max: 2, onnotice: () => {} });
  app = await openTestApp({ databaseUrl: database.url, metricsPort: 0 });
  const made = await Promise.all(Array.from({ length: workspaces }, () => createWorkspace(app.httpUrl)));
  keys = made.map(({ key }) => key);
});
afterAll(async () => {
  await app?.close();
  await sql?.end({ timeout: 1 });
  await database.drop();
});

const outcomes = async (calls: readonly Promise<Answered>[]) =>
  (await Promise.all(calls)).map(({ outcome }) => outcome);
const busy = () => readMetric(app, "pool_connections", { state: "busy" });
const sessions = () =>
  sql`select from pg_stat_activity where application_name = 'latchkey' and datname = current_database()`.then(
    ({ count }) => count,
  );

it("while every connection that is there for it waits for a lock, held keys are judged, nothing outlives its deadline, and all is served afterwards", async () => {
  const waiting: Promise<Answered>[] = [];
  const [key, ...others] = keys as [string, ...string[]];
  const keyOf = (index: number) => others[index % others.length] as string;
  await sql.begin(async (holder) => {
    await holder`lock table audit_events in access exclusive mode`;
    const change = (count: number) =>
      waiting.push((count % 2 ? callHttp : callGrpc)(app, "createKey", keyOf(count), { name: `${count}` }));
    for (let count = 0; count < ordinary; count++) change(count);
    await expect.poll(busy, { timeout: 5_000 }).toBe(ordinary);

    expect(await outcomes([callHttp, callGrpc].map((call) => call(app, "verifyKey", key, { key })))).toEqual([
      "OK",
      "OK",
    ]);
    const late = await callGrpc(app, "listKeys", key, {}, 300);
    expect(late.outcome).toMatch(/^(DEADLINE_EXCEEDED|UNAVAILABLE)$/);
    expect(late.ms).toBeLessThan(2_000);
    expect((await overConnect(key, 300)).error).toMatch(/^(deadline_exceeded|unavailable)$/);

    // Not before: who waits while nothing moves is refused after a second.
    for (let count = ordinary; count < many; count++) change(count);
    await sleep(100);
  });

  expect(await outcomes(waiting)).toEqual(Array(many).fill("OK"));
  expect(await outcomes([callHttp(app, "listKeys", key), callGrpc(app, "listKeys", key)])).toEqual(["OK", "OK"]);
  await expect.poll(busy).toBe(0);
  expect(await readMetric(app, "pool_waiting_statements")).toBe(0);
  expect(await sessions()).toBeLessThanOrEqual(11);
});

/** The HTTP port has deadlines for those who speak Connect. */
async function overConnect(key: string, timeoutMs: number): Promise<{ error: string }> {
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
