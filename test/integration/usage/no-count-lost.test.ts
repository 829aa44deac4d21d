import type postgres from "postgres";
import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { createLog } from "../../../src/observe/log.js";
import { succeed } from "../../support/calls.js";
import { createWorkspace, post } from "../../support/clients/http-requests.js";
import { createDatabase, openTestApp, type TestApp } from "../../support/harness.js";
import { openProxy } from "../../support/proxy.js";

let database: Awaited<ReturnType<typeof createDatabase>>;
let sql: postgres.Sql;
let app: TestApp;
let caller: string;
let keyId: string;
let key: string;

beforeEach(async () => {
  database = await createDatabase(inject("template"));
  sql = openSql(database.url, { max: 2, onnotice: () => {} });
  app = await openTestApp({ databaseUrl: database.url });
  caller = (await createWorkspace(app.httpUrl)).key;
  ({ keyId, key } = await succeed<{ keyId: string; key: string }>(app.httpUrl, "keys.createKey", caller, {}));
});
afterEach(async () => {
  await app.close();
  await sql.end();
  await database.drop();
});

/** Verifies the key; returns whether the service has answered. */
async function verify(origin: string): Promise<boolean> {
  const response = await post(origin, "/v2/keys.verifyKey", caller, { key, tags: ["path=/a"] });
  return response.status === 200;
}

/** The stored verifications of the key: all of them, or those with a tag. */
async function stored(tag = ""): Promise<number> {
  const [row] = await sql<{ valid: number }[]>`
    select coalesce(sum(valid), 0)::float8 as valid from verification_counts where resource_id = ${keyId} and tag = ${tag}`;
  return row?.valid ?? Number.NaN;
}

describe("every verification is counted, and none twice", () => {
  it("at graceful shutdown: those of just before are stored", async () => {
    for (let call = 0; call < 50; call++) expect(await verify(app.httpUrl)).toBe(true);
    await app.close();
    expect([await stored(), await stored("path=/a")]).toEqual([50, 50]);
    app = await openTestApp({ databaseUrl: database.url });
    const [part] = await succeed<{ total: number }[]>(app.httpUrl, "keys.getUsage", caller, { keyId });
    expect(part?.total).toBe(50);
  });

  it("on two replicas", async () => {
    const second = await openTestApp({ databaseUrl: database.url });
    const origins = [app.httpUrl, second.httpUrl];
    await Promise.all(Array.from({ length: 100 }, (_, call) => verify(origins[call % 2] ?? "")));
    await second.close();
    await expect.poll(stored, { timeout: 15_000 }).toBe(100);
  });

  it("although PostgreSQL has stored batches whose outcome the service does not know", async () => {
    const proxy = await openProxy(database.url);
    const lines: string[] = [];
    const log = createLog("warn", { destination: { write: (line: string) => void lines.push(line) } });
    const behind = await openTestApp({ databaseUrl: proxy.url, log });
    let verified = 0;
    const verifyTimes = async (times: number) => {
      for (const end = verified + times; verified < end; ) if (await verify(behind.httpUrl)) verified += 1;
    };
    try {
      await verifyTimes(1);
      await expect.poll(stored, { timeout: 20_000 }).toBe(1);
      for (let round = 0; round < 3; round++) {
        await verifyTimes(20);
        const seen = await stored();
        // The next batch waits for this lock. When it gets it, it is stored, and its response is lost.
        await sql.begin(async (locking) => {
          await locking`select from verification_counts where resource_id = ${keyId} for update`;
          const waiting = () => sql`
            select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
          await expect.poll(async () => (await waiting()).length, { timeout: 20_000 }).toBe(1);
          proxy.delayResponses(60_000);
        });
        await expect.poll(stored, { timeout: 20_000, interval: 5 }).toBeGreaterThan(seen);
        proxy.cut();
        proxy.resume();
        // The batch is sent again, before the counts of these.
        await verifyTimes(7);
        await expect.poll(stored, { timeout: 20_000 }).toBe(verified);
        expect(lines.join()).toContain("cannot store counts of verifications");
        lines.length = 0;
      }
    } finally {
      await behind.close();
      await proxy.close();
    }
    expect([await stored(), await stored("path=/a")]).toEqual([verified, verified]);
  }, 90_000);
});
