import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { callGrpc, callHttp } from "../../support/clients/timed-calls.js";
import { redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, type TestApp, twoRenewals } from "../../support/harness.js";
import { type OwnPostgres, openOwnPostgres } from "../../support/own-postgres.js";
import { keyEntryOf } from "../../support/redis-entries.js";

let postgres: OwnPostgres;
let app: TestApp;
let other: TestApp;

beforeAll(async () => {
  // The WAL writer would soon write the end of a transaction that was rolled back.
  postgres = await openOwnPostgres({ wal_writer_delay: "10s" });
  app = await openTestApp({ databaseUrl: postgres.url, metricsPort: 0 });
  other = await openTestApp({ databaseUrl: postgres.url, metricsPort: 0 });
  await redisInUse(app);
  await redisInUse(other);
});
afterAll(async () => {
  await other?.close();
  await app?.close();
  await postgres?.close();
});

const soon = { timeout: 20_000 };

it.each([1, 2, 3])(
  "a change after crash %d is found, although its transaction has an id that replicas have seen",
  async () => {
    const { key, workspaceId } = await createWorkspace(app.httpUrl);
    const outcomes = () =>
      Promise.all([callHttp, callGrpc].map(async (call) => (await call(app, "listKeys", key)).outcome));
    expect(await outcomes()).toEqual(["OK", "OK"]);

    // Rolled back, so its id is on the disk only with a later commit. That of last-used times would be one.
    const before = openSql(postgres.url, { max: 1, onnotice: () => {} });
    onTestFinished(() => before.end({ timeout: 1 }));
    const isStored = async () =>
      (await before`select from keys where workspace_id = ${workspaceId} and last_used_at is not null`).count === 1;
    await expect.poll(isStored, soon).toBe(true);
    const seen = await before
      .begin(async (transaction) => {
        const [row] = await transaction<{ xid: string }[]>`select pg_current_xact_id()::text as xid`;
        throw Object.assign(new Error("rolled back"), row);
      })
      .catch(({ xid }) => Number(xid));
    await twoRenewals(app);
    await postgres.restart("immediate");

    // At once, so that it is the first change.
    const after = openSql(postgres.url, { max: 1, onnotice: () => {} });
    onTestFinished(() => after.end({ timeout: 1 }));
    const [disabled] = await after<{ xid: string }[]>`
    update workspaces set disabled_at = now(), disabled_reason = 'OWNER_REQUEST'
    where workspace_id = ${workspaceId} returning changed_xid::text as xid`;
    // One replica may have started the new timeline before.
    expect(Number(disabled?.xid)).toBeLessThanOrEqual(seen + 2);
    await expect.poll(outcomes, soon).not.toContain("UNAVAILABLE");
    await twoRenewals(app);
    const refused = expect.stringContaining("authorization/workspace_disabled");
    expect(await outcomes()).toEqual([refused, "PERMISSION_DENIED"]);
    expect((await callHttp(other, "listKeys", key)).outcome, `Redis has ${keyEntryOf(key)}`).toEqual(refused);
  },
  90_000,
);
