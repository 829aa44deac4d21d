import { afterAll, beforeAll, expect, inject, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { openDatabase } from "../../../src/storage/postgres/database.js";
import { sql } from "../../../src/storage/postgres/sql.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { callGrpc, callHttp } from "../../support/clients/timed-calls.js";
import { createDatabase, openTestApp, type TestApp } from "../../support/harness.js";

/** Shorter than the default of the service. In the driver, the settings of the URL override those of the service. */
const timeoutMs = 800;

let database: Awaited<ReturnType<typeof createDatabase>>;
let app: TestApp;
let key: string;
beforeAll(async () => {
  database = await createDatabase(inject("template"));
  app = await openTestApp({ databaseUrl: `${database.url}?statement_timeout=${timeoutMs}` });
  key = (await createWorkspace(app.httpUrl)).key;
});
afterAll(async () => {
  await app?.close();
  await database.drop();
});

it("PostgreSQL cancels a statement after its timeout: the caller gets UNAVAILABLE, and others are served", async () => {
  const sql = openSql(database.url, { max: 1, onnotice: () => {} });
  onTestFinished(() => sql.end({ timeout: 1 }));
  await sql.begin(async (holder) => {
    await holder`lock table audit_events in access exclusive mode`;
    const slow = [callHttp, callGrpc].map((call) => call(app, "createKey", key, { name: "slow" }));
    expect((await callHttp(app, "listKeys", key)).outcome).toBe("OK");
    // Not because of the deadline, which is ten times as long: that would be DEADLINE_EXCEEDED.
    expect((await Promise.all(slow)).map(({ outcome }) => outcome)).toEqual(["UNAVAILABLE", "UNAVAILABLE"]);
    const waiting =
      await holder`select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
    expect(waiting.count).toBe(0);
  });
  expect((await callGrpc(app, "createKey", key, { name: "again" })).outcome).toBe("OK");
});

it("the default statement timeout is ten seconds", async () => {
  const db = openDatabase(database.url);
  onTestFinished(db.close);
  expect(await db.runInBackground(sql`select current_setting('statement_timeout') as timeout`)).toEqual([
    { timeout: "10s" },
  ]);
});
