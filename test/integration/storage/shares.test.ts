import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import type { Call } from "../../../src/call/call.js";
import type { Statement } from "../../../src/storage/postgres/connection.js";
import { poolSettings } from "../../../src/storage/postgres/connection.js";
import { type Database, openDatabase } from "../../../src/storage/postgres/database.js";
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

/** How long the database takes for a statement of these tests. */
const statementMs = 30;

const work = (sql: Statement) => sql`select pg_sleep(${statementMs / 1_000})::text`;
const callOf = (more: Partial<Call>): Call => ({ requestId: "req_test", deadline: Number.POSITIVE_INFINITY, ...more });

/** Runs statements on and on, so many at a time, until it is stopped. Resolves to how many were refused. */
function keepRunning(count: number, statement: () => Promise<unknown>) {
  let stopped = false;
  let refused = 0;
  const running = Array.from({ length: count }, async () => {
    while (!stopped) {
      await statement().catch(async () => {
        refused += 1;
        await sleep(statementMs);
      });
    }
  });
  return async () => {
    stopped = true;
    await Promise.all(running);
    return refused;
  };
}

describe("who asks for more than can be served is refused, and refuses nobody else:", () => {
  it("a stranger who has keys looked up, on one connection, of those on other connections", async () => {
    const connection = {};
    const stop = keepRunning(300, () => db.readShared(callOf({ connection }), work));
    await sleep(2_000); // until the queue stands
    for (let times = 0; times < 5; times++) await db.readShared(callOf({ connection: {} }), work);
    expect(await stop()).toBeGreaterThan(0);
  });

  it("a workspace, of others, of lookups, of revocations and of the operator", async () => {
    const stop = keepRunning(300, () => db.run(callOf({ workspaceId: "attacker" }), work));
    const stopRevocations = keepRunning(50, () => db.run(callOf({ workspaceId: "attacker", revokes: true }), work));
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
