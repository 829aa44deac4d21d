import { afterAll, beforeAll, expect, inject, it, onTestFinished } from "vitest";
import { openDatabase } from "../../../src/storage/postgres/database.js";
import { createDatabase } from "../../support/harness.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
beforeAll(async () => {
  database = await createDatabase(inject("template"));
});
afterAll(() => database.drop());

it("a statement that cannot be built rejects, and its connection is released", async () => {
  const db = openDatabase(database.url, { connections: 1, statementMs: 10_000 });
  onTestFinished(db.close);
  const fails = () => {
    throw new Error("no such column");
  };
  await expect(db.runInBackground(fails)).rejects.toThrow("no such column");
  expect(db.usage()).toMatchObject({ busy: 0, free: 1 });

  const slow = db.runInBackground((sql) => sql`select pg_sleep(0.3)`);
  await new Promise((resolve) => setTimeout(resolve, 50));
  const queued = [
    db.runInBackground(fails),
    db.runInBackground((sql) => sql`select 1 as number`),
    db.runInBackground(fails),
  ];
  const [first, second, third] = await Promise.allSettled(queued);
  expect([first, third]).toMatchObject([{ status: "rejected" }, { status: "rejected" }]);
  expect(second).toMatchObject({ status: "fulfilled", value: [{ number: 1 }] });
  await slow;
  expect(db.usage()).toMatchObject({ busy: 0, free: 1 });
});
