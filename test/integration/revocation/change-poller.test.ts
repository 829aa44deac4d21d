import { afterAll, beforeAll, expect, inject, it, onTestFinished } from "vitest";
import { createChangePoller, pollerSettings } from "../../../src/revocation/change-poller.js";
import { createChangeStore } from "../../../src/revocation/change-store.js";
import { snapshotBefore } from "../../../src/revocation/snapshot.js";
import { openDatabase } from "../../../src/storage/postgres/database.js";
import { createDatabase } from "../../support/harness.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
beforeAll(async () => {
  database = await createDatabase(inject("template"));
});
afterAll(() => database.drop());

it("the first poll detects a failover that happened before it, and the pool is renewed", async () => {
  const own = openDatabase(database.url, pollerSettings());
  onTestFinished(own.close);
  const { timeline } = await createChangeStore(own).readTerms();
  for (const [found, renewals] of [
    [timeline, 0],
    ["that of the previous server", 1],
  ] as const) {
    let renewed = 0;
    const poller = createChangePoller(own, [{ renew: () => void renewed++ }], found);
    await poller.connect();
    await poller.changedSince(snapshotBefore(0));
    await poller.changedSince(snapshotBefore(0));
    expect(renewed).toBe(renewals);
  }
});
