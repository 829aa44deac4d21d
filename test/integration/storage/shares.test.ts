import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import type { Call } from "../../../src/call/call.js";
import { poolSettings } from "../../../src/storage/postgres/connection.js";
import { type Database, openDatabase } from "../../../src/storage/postgres/database.js";
import { sql } from "../../../src/storage/postgres/sql.js";
import { createDatabase } from "../../support/harness.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
let db: Database;
beforeAll(async () => {
  database = await createDatabase(inject("template"));
  db = openDatabase(database.url, poolSettings, { succeeded() {}, failed() {}, shed() {} });
});
afterAll(async () => {
  await db.close();
  await database.drop();
});

/** The duration of a statement of these tests in PostgreSQL. */
const statementMs = 30;

const work = sql`select pg_sleep(${statementMs / 1_000})::text`;
const callOf = (fields: Partial<Call>): Call => ({
  requestId: "req_test",
  deadline: Number.POSITIVE_INFINITY,
  ...fields,
});

/** Runs statements with this concurrency until it is stopped. Stopping resolves to how many were shed. */
function startLoad(concurrency: number, statement: () => Promise<unknown>) {
  let stopped = false;
  let shed = 0;
  const running = Array.from({ length: concurrency }, async () => {
    while (!stopped) {
      await statement().catch(async () => {
        shed += 1;
        await sleep(statementMs);
      });
    }
  });
  return async () => {
    stopped = true;
    await Promise.all(running);
    return shed;
  };
}

describe("load shedding affects only the account that overloads the pool:", () => {
  it("lookups on one client connection do not affect lookups on others", async () => {
    const connection = {};
    const stop = startLoad(300, () => db.readShared(callOf({ connection }), work));
    await sleep(2_000); // until there is a standing queue
    for (let round = 0; round < 5; round++) await db.readShared(callOf({ connection: {} }), work);
    expect(await stop()).toBeGreaterThan(0);
  });

  it("one workspace does not affect others, lookups, revocations or the operator", async () => {
    const stop = startLoad(300, () => db.run(callOf({ workspaceId: "attacker" }), work));
    const stopRevocations = startLoad(50, () => db.run(callOf({ workspaceId: "attacker", revokes: true }), work));
    await sleep(2_000);
    const others = [
      callOf({ workspaceId: "other" }),
      callOf({ workspaceId: "other", revokes: true }),
      callOf({}), // the operator
      callOf({ revokes: true }),
    ];
    for (const call of others) await db.run(call, work);
    await db.readShared(callOf({ connection: {} }), work);
    expect(db.usage().waiting).toMatchObject({ operator: 0, lookup: 0 });
    expect(await stop()).toBeGreaterThan(0);
    expect(await stopRevocations(), "a revocation waits for as long as its call does").toBe(0);
  });
});
