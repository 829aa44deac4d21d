import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { callHttp } from "../../support/clients/timed-calls.js";
import { disable, enable, redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { readLookups } from "../../support/metrics.js";
import { type OwnPostgres, openOwnPostgres } from "../../support/own-postgres.js";
import { inDatabase, keyEntryOf, readTerms } from "../../support/redis-entries.js";

let postgres: OwnPostgres;
let app: TestApp;
/** A replica that has cached nothing of a workspace until it is called. */
let other: TestApp;
let copy: string;

beforeAll(async () => {
  copy = mkdtempSync(join(tmpdir(), "latchkey-copy-"));
  postgres = await openOwnPostgres();
  app = await openTestApp({ databaseUrl: postgres.url, metricsPort: 0 });
  other = await openTestApp({ databaseUrl: postgres.url, metricsPort: 0 });
  await redisInUse(app);
  await redisInUse(other);
});
afterAll(async () => {
  await other.close();
  await app.close();
  await postgres.close();
  rmSync(copy, { recursive: true, force: true });
});

it("after the restore of an older backup, values cached in memory and in Redis are not used", async () => {
  const { key, workspaceId } = await createWorkspace(app.httpUrl);
  const call = async (to: TestApp) => (await callHttp(to, "listKeys", key)).outcome;
  const soon = { timeout: 20_000 };
  await disable(app, workspaceId);
  await postgres.whileStopped((folder) => copyFolder(folder, join(copy, "postgres")));

  await expect.poll(() => enable(app, workspaceId).then(() => "done", String), soon).toBe("done");
  await expect.poll(() => call(app), soon).toBe("OK");
  const { memory } = await readLookups(app, "key");
  expect(await call(app)).toBe("OK");
  expect((await readLookups(app, "key")).memory).toBe(memory + 1);
  const { snapshot: lost } = await readTerms(app);

  await postgres.whileStopped((folder) => {
    rmSync(folder, { recursive: true });
    copyFolder(join(copy, "postgres"), folder);
  });
  await expect.poll(() => call(app), soon).toContain("authorization/workspace_disabled");
  // The database uses the same transaction ids again. Values that were read in the lost transactions must not become
  // valid again when their ids are reached.
  const xmax = async () => (await readTerms(app)).snapshot.xmax;
  while ((await xmax()) <= lost.xmax + 5) await inDatabase(app, "update cluster_state set lease_ms = lease_ms");
  expect(await call(app)).toContain("authorization/workspace_disabled");
  expect(await call(other), `although Redis has ${keyEntryOf(key)}`).toContain("authorization/workspace_disabled");
}, 90_000);

/** Keeps the owner, which is not always the user that runs the tests. */
function copyFolder(from: string, to: string): void {
  execFileSync("cp", ["-a", from, to]);
}
