import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { hashSecret } from "../../../src/keys/secret.js";
import { createKeysStore } from "../../../src/keys/store.js";
import { createOverridesStore } from "../../../src/limiter/overrides-store.js";
import { createChangePoller, pollerSettings } from "../../../src/revocation/change-poller.js";
import { snapshotBefore } from "../../../src/revocation/snapshot.js";
import { type Database, openDatabase } from "../../../src/storage/postgres/database.js";
import { sql } from "../../../src/storage/postgres/sql.js";
import { createWorkspacesStore } from "../../../src/workspaces/store.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { openTestApp } from "../../support/harness.js";
import { type BackendProxy, openProxy } from "../../support/proxy.js";
import { type Cluster, openCluster } from "../../verification/faults/cluster.js";

let folder: string;
let cluster: Cluster;
let standbyUrl: string;
let workspace: { readonly workspaceId: string; readonly key: string };
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "latchkey-standby-"));
  cluster = await openCluster(folder, { synchronous: false });
  standbyUrl = cluster.standbyUrl ?? "";
  const app = await openTestApp({ databaseUrl: cluster.url });
  workspace = await createWorkspace(app.httpUrl);
  await app.close();
}, 120_000);
afterAll(async () => {
  await cluster?.close();
  rmSync(folder, { recursive: true, force: true });
});

const quotas = { keys: 100, identities: 100, bytes: 1_000_000 };
const readOnly = { code: "25006" };
const soon = { timeout: 10_000 };

/** An address that leads to the standby at first. */
async function openAddress(): Promise<BackendProxy> {
  const proxy = await openProxy(standbyUrl);
  onTestFinished(proxy.close);
  return proxy;
}

function open(...parameters: Parameters<typeof openDatabase>): Database {
  const db = openDatabase(...parameters);
  onTestFinished(db.close);
  return db;
}

it.each<[string, (db: Database) => Promise<unknown>]>([
  ["of a key", (db) => createKeysStore(db, quotas).readKeyRecord(hashSecret(workspace.key))],
  ["of a workspace", (db) => createWorkspacesStore(db).readWorkspaceState(workspace.workspaceId)],
  [
    "of rate limit overrides",
    (db) => createOverridesStore(db, quotas).readOverrides(workspace.workspaceId, "requests"),
  ],
])(
  "a state %s is never read from a standby, whose snapshots lack the transactions in progress",
  async (_what, read) => {
    const standby = open(standbyUrl);
    // Once it has the row.
    await expect.poll(() => read(standby).catch((error) => error), soon).toMatchObject(readOnly);
    expect(await read(open(cluster.url))).toBeDefined();
  },
);

it("connections that lead to a standby are replaced, until the address leads to the primary", async () => {
  const address = await openAddress();
  const db = open(address.url);
  const change = () => db.runInBackground(sql`update cluster_state set lease_ms = lease_ms`).then(() => "done", String);
  expect(await change()).toContain("read-only");
  address.connectNewTo(cluster.url);
  await expect.poll(change, soon).toBe("done");
});

it("the poller leaves a standby when its address leads to the primary, and so do the other connections", async () => {
  const address = await openAddress();
  const own = open(address.url, pollerSettings());
  let renewed = 0;
  const poller = createChangePoller(own, [{ renew: () => void renewed++ }], "");
  const poll = async () => {
    await poller.connect();
    return (await poller.changedSince(snapshotBefore(0))).standby;
  };
  await expect.poll(() => poll().catch(String), soon).toBe(true);
  address.connectNewTo(cluster.url);
  await expect.poll(() => poll().catch(String), soon).toBe(false);
  expect(renewed).toBeGreaterThan(0);
});
