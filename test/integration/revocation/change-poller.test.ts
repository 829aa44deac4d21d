import { afterAll, beforeAll, expect, inject, it, onTestFinished } from "vitest";
import { createChangePoller, pollerSettings } from "../../../src/revocation/change-poller.js";
import { createChangesStore } from "../../../src/revocation/change-store.js";
import { snapshotBefore } from "../../../src/revocation/snapshot.js";
import { openDatabase } from "../../../src/storage/postgres/database.js";
import { createDatabase } from "../../support/harness.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
beforeAll(async () => {
  database = await createDatabase(inject("template"));
});
afterAll(() => database.drop());

it("a server that takes over before the first question is noticed by that question, and the pool renewed", async () => {
  const own = openDatabase(database.url, pollerSettings);
  onTestFinished(own.close);
  const { history } = await createChangesStore(own).readTerms();
  for (const [found, renewals] of [
    [history, 0],
    ["that of the server before", 1],
  ] as const) {
    let renewed = 0;
    const heartbeat = createChangePoller(own, { renew: () => void renewed++ }, found);
    await heartbeat.connect();
    await heartbeat.changedSince(snapshotBefore(0));
    await heartbeat.changedSince(snapshotBefore(0));
    expect(renewed).toBe(renewals);
  }
});
