import type postgres from "postgres";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { listKeys } from "../../support/clients/verify-calls.js";
import { openTestApp, type TestApp } from "../../support/harness.js";

// The service never removes the row of a live key. People with access to the database may.
describe("a key whose row is removed by hand is refused within a lease, although its id is lost", () => {
  let app: TestApp;
  let sql: postgres.Sql;
  let key: string;
  let workspaceId: string;

  beforeAll(async () => {
    app = await openTestApp();
    sql = openSql(app.databaseUrl, { max: 1, onnotice: () => {} });
  });
  afterAll(async () => {
    await sql.end();
    await app.close();
  });
  beforeEach(async () => {
    ({ key, workspaceId } = await createWorkspace(app.httpUrl));
    for (let call = 0; call < 3; call++) expect((await listKeys(app, key)).status).toBe(200);
  });

  it.each([
    ["while the key is valid", () => sql`delete from keys where workspace_id = ${workspaceId}`],
    [
      "in the transaction that deletes the key, with a date of long ago",
      () =>
        sql.begin(async (transaction) => {
          await transaction`update keys set deleted_at = '2001-01-01' where workspace_id = ${workspaceId}`;
          await transaction`delete from keys where workspace_id = ${workspaceId}`;
        }),
    ],
    ["with all other keys", () => sql`truncate keys cascade`],
    ["with its workspace", () => sql`truncate workspaces cascade`],
  ])("%s", async (_when, remove) => {
    await remove();
    await expect.poll(async () => (await listKeys(app, key)).status, { timeout: 5_000 }).toBe(401);
    for (let call = 0; call < 10; call++) expect((await listKeys(app, key)).status).toBe(401);
  });
});
