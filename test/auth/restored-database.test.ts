import type postgres from "postgres";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { createWorkspace } from "../gateway/http.js";
import { openTestApp, type TestApp } from "../harness.js";
import { callHttp } from "./answered.js";
import { redisInUse } from "./calls.js";
import { readLookups, readMetric } from "./vitals.js";

let app: TestApp;
let sql: postgres.Sql;
let key: string;
let workspaceId: string;

beforeEach(async () => {
  app = await openTestApp({ metricsPort: 0 });
  await redisInUse(app);
  sql = openSql(app.databaseUrl, { max: 1 });
  // So that there is a past to go back to.
  await sql`update epoch set value = 10`;
  ({ key, workspaceId } = await createWorkspace(app.httpUrl));
  await expect.poll(call).toBe("OK");
});
afterEach(async () => {
  await sql.end();
  await app.close();
});

const call = async (to = app) => (await callHttp(to, "listKeys", key)).outcome;

/** The database as an old copy of it has it: the key disabled, without a trace of that among the changes. */
async function disableUnnoticed(): Promise<void> {
  await sql`alter table keys disable trigger keys_stamp`;
  await sql`update keys set enabled = false where workspace_id = ${workspaceId}`;
  await sql`alter table keys enable trigger keys_stamp`;
}

describe("a database that was restored from an older copy", () => {
  it("makes the process forget what it holds, for it is of a past that is no more", async () => {
    await disableUnnoticed();
    const { held } = await readLookups(app, "key");
    expect(await call()).toBe("OK");
    expect((await readLookups(app, "key")).held).toBe(held + 1);
    await sql`update epoch set value = value - 1`;
    await expect.poll(call).toContain("authorization/key_disabled");
  });

  it("is believed against what Redis has kept, also when its epochs have caught up", async () => {
    const knownEpoch = () => readMetric(app, "epoch");
    await disableUnnoticed();
    await sql`update epoch set value = 9`;
    await expect.poll(knownEpoch).toBe(9);
    // As any change does.
    await sql`update epoch set value = 10`;
    await expect.poll(knownEpoch).toBe(10);
    expect(await call()).toContain("authorization/key_disabled");
  });
});
