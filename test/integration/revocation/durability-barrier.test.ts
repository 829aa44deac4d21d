import { afterAll, beforeAll, expect, inject, it, onTestFinished } from "vitest";
import { createChangeStore } from "../../../src/revocation/change-store.js";
import { createDurabilityBarrier } from "../../../src/revocation/durability-barrier.js";
import { openDatabase } from "../../../src/storage/postgres/database.js";
import { createDatabase } from "../../support/harness.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
beforeAll(async () => {
  database = await createDatabase(inject("template"));
});
afterAll(() => database.drop());

it("a read from before a failover is not confirmed by a commit on the new server", async () => {
  const db = openDatabase(database.url, { connections: 1, statementMs: 10_000 });
  onTestFinished(db.close);
  const makeDurable = createDurabilityBarrier(db);
  const call = { requestId: "req_test", deadline: Number.POSITIVE_INFINITY };
  const { timeline } = await createChangeStore(db).readTerms();
  await makeDurable(call, timeline);
  await expect(makeDurable(call, "that of the previous server")).rejects.toMatchObject({ code: "40003" });
});
