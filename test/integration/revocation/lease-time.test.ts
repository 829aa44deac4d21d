import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, inject, it, onTestFinished } from "vitest";
import { changeLeaseTime } from "../../../src/app.js";
import { createLeaseTimes } from "../../../src/revocation/lease-time.js";
import { openDatabase } from "../../../src/storage/postgres/database.js";
import { sql } from "../../../src/storage/postgres/sql.js";
import { createDatabase, operatorKey } from "../../support/harness.js";
import { readMetric } from "../../support/metrics.js";
import { openReplicas, type Replicas } from "../../support/replicas.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
let replicas: Replicas;
let workspace: { workspaceId: string; key: string };

beforeAll(async () => {
  database = await createDatabase(inject("template"));
  await changeLeaseTime(database.url, 250);
  replicas = await openReplicas(2, database.url);
  workspace = await replicas.change("createWorkspace", operatorKey, { name: "test" });
  await replicas.expectCached(workspace.key);
});
afterAll(async () => {
  await replicas.close();
  await database.drop();
});

it("the lease time is raised and lowered while replicas run: every response is correct, and none is 503", async () => {
  const { workspaceId, key } = workspace;
  const { apps, protocols } = replicas;
  const results = new Set<string>();
  let rounds = 0;
  let running = true;

  /** Keeps the key cached, so that every replica answers from memory at any moment. */
  async function callRepeatedly(protocol: Replicas["protocols"][number]): Promise<void> {
    while (running) {
      const outcome = await protocol.call("verifyKey", key, { key });
      results.add(outcome.ok ? "ok" : outcome.code);
      await sleep(1);
    }
  }

  async function changeRepeatedly(): Promise<void> {
    for (; running; rounds++) {
      await replicas.change("disableWorkspace", operatorKey, { workspaceId, reason: "UNPAID_BILLING" });
      expect(await replicas.outcomes(key)).toEqual(protocols.map(() => "authorization/workspace_disabled"));
      await replicas.change("enableWorkspace", operatorKey, { workspaceId });
      expect(await replicas.outcomes(key)).toEqual(protocols.map(() => "ok"));
    }
  }

  async function changeLeaseTimes(): Promise<void> {
    for (const ms of [1_000, 250, 1_000, 250]) {
      await changeLeaseTime(database.url, ms);
      const before = rounds;
      await expect.poll(() => rounds, { timeout: 20_000 }).toBeGreaterThan(before + 1);
      for (const app of apps) {
        const left = () => readMetric(app, "lease_seconds_left");
        if (ms === 1_000) await expect.poll(left).toBeGreaterThan(0.25);
        else expect(await left()).toBeLessThanOrEqual(0.25);
      }
    }
  }

  const changed = changeLeaseTimes().finally(() => {
    running = false;
  });
  await Promise.all([changed, changeRepeatedly(), ...protocols.map(callRepeatedly)]);
  expect([...results].sort()).toEqual(["authorization/workspace_disabled", "ok"]);
  for (const app of apps) expect(await readMetric(app, "stale_accept_total")).toBe(0);
}, 120_000);

it("of two concurrent changes of the lease time, the first does not lower the wait that the other needs", async () => {
  const db = openDatabase(database.url, { connections: 1, statementMs: 10_000 });
  onTestFinished(db.close);
  const times = createLeaseTimes(db);
  const read = async () => (await db.runInBackground(sql`select lease_ms, wait_ms from cluster_state`))[0];

  expect(await times.setLease(1_000), "a lease time longer than the wait of changes").toBeUndefined();
  const byHand = db.runInBackground(sql`update cluster_state set lease_ms = 1000`);
  await expect(byHand).rejects.toMatchObject({ code: "23514" });
  await times.raiseWait(1_000);
  const first = await times.setLease(250);
  // The other operator raises the lease time and lowers it again, so that the row has the same values as before.
  await times.setLease(1_000);
  const second = await times.setLease(250);
  expect(await times.setWait(250, first?.version ?? "")).toBe(false);
  expect(await read()).toEqual({ leaseMs: 250, waitMs: 1_000 });
  expect(await times.setWait(250, second?.version ?? "")).toBe(true);
  expect(await read()).toEqual({ leaseMs: 250, waitMs: 250 });
});
