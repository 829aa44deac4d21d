import { afterAll, beforeAll, expect, inject, it, onTestFinished } from "vitest";
import { createChangesStore } from "../../../src/revocation/change-store.js";
import { createDurabilityBarrier } from "../../../src/revocation/make-durable.js";
import { openDatabase } from "../../../src/storage/postgres/database.js";
import { createDatabase } from "../../support/harness.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
beforeAll(async () => {
  database = await createDatabase(inject("template"));
});
afterAll(() => database.drop());

it("what was read before another server took over is not confirmed by a commit on that server", async () => {
  const db = openDatabase(database.url, { connections: 1, statementMs: 10_000 });
  onTestFinished(db.close);
  const makeDurable = createDurabilityBarrier(db);
  const call = { requestId: "req_test", deadline: Number.POSITIVE_INFINITY };
  const { history } = await createChangesStore(db).readTerms();
  await makeDurable(call, history);
  await expect(makeDurable(call, "that of the server before")).rejects.toMatchObject({ code: "40003" });
});
