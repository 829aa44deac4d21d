import type postgres from "postgres";
import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { createLog } from "../../../src/observe/log.js";
import { succeed } from "../../support/calls.js";
import { createWorkspace, post } from "../../support/clients/http-requests.js";
import { createDatabase, openTestApp, type TestApp } from "../../support/harness.js";
import { openProxy } from "../../support/proxy.js";

interface CreatedKey {
  readonly keyId: string;
  readonly key: string;
}

let database: Awaited<ReturnType<typeof createDatabase>>;
let sql: postgres.Sql;
let app: TestApp;
let caller: string;

beforeEach(async () => {
  database = await createDatabase(inject("template"));
  sql = openSql(database.url, { max: 1, onnotice: () => {} });
  app = await openTestApp({ databaseUrl: database.url });
  caller = (await createWorkspace(app.httpUrl)).key;
});
afterEach(async () => {
  await app.close();
  await sql.end();
  await database.drop();
});

const createKey = (body: object = {}) => succeed<CreatedKey>(app.httpUrl, "keys.createKey", caller, body);
const verify = (key: string, more: object = {}) =>
  succeed<{ code: string }>(app.httpUrl, "keys.verifyKey", caller, { key, ...more }).then(({ code }) => code);

/** The last-used time of a key in the database. */
async function storedTime({ keyId }: CreatedKey): Promise<number | undefined> {
  const [row] = await sql<{ at: Date | null }[]>`select last_used_at as at from keys where key_id = ${keyId}`;
  return row?.at?.getTime();
}

/** Waits a few seconds for a stored time within these bounds. */
async function expectStored(created: CreatedKey, from: number, until: number): Promise<void> {
  await expect.poll(() => storedTime(created), { timeout: 6_000, interval: 100 }).toBeGreaterThanOrEqual(from);
  expect(await storedTime(created)).toBeLessThanOrEqual(until);
}

describe("the last-used time of a key is stored within a few seconds", () => {
  it("after a verification as VALID and after a call that it authenticated, and is returned with the key", async () => {
    const verified = await createKey();
    const calling = await createKey({ scopes: ["keys.read"] });
    const from = Date.now();
    expect(await verify(verified.key)).toBe("VALID");
    await succeed(app.httpUrl, "keys.listKeys", calling.key, {});
    const until = Date.now();
    await expectStored(verified, from, until);
    await expectStored(calling, from, until);
    const returned = await succeed<{ lastUsedAt: number }>(app.httpUrl, "keys.getKey", caller, {
      keyId: verified.keyId,
    });
    expect(returned.lastUsedAt).toBe(await storedTime(verified));
  });

  it("but not after a verification as invalid, a refused call, or a read of the key", async () => {
    const disabled = await createKey({ enabled: false, scopes: ["*"] });
    const expired = await createKey({ expires: Date.now() + 60_000, scopes: ["*"] });
    const lacking = await createKey({ permissions: ["documents.read"] });
    const seen = await createKey();
    await app.advance(60_000);
    expect(await verify(disabled.key)).toBe("DISABLED");
    expect(await verify(expired.key)).toBe("EXPIRED");
    expect(await verify(lacking.key, { permissions: "documents.write" })).toBe("INSUFFICIENT_PERMISSIONS");
    for (const { key } of [disabled, expired]) {
      expect((await post(app.httpUrl, "/v2/keys.listKeys", key, {})).status).toBeGreaterThan(400);
    }
    await succeed(app.httpUrl, "keys.whoami", caller, { key: seen.key });
    await succeed(app.httpUrl, "keys.getKey", caller, { keyId: seen.keyId });
    const used = await createKey();
    expect(await verify(used.key)).toBe("VALID");
    await app.close();
    expect(await storedTime(used)).toBeDefined();
    for (const unused of [disabled, expired, lacking, seen]) expect(await storedTime(unused)).toBeUndefined();
  });
});

describe("last-used times cost few writes", () => {
  it("a key that is verified all the time is written at most once a second, and is not marked as changed", async () => {
    const { keyId, key } = await createKey();
    await sql`create table writes (key_id text)`;
    await sql`create function count_write() returns trigger language plpgsql as
      $$ begin insert into writes values (new.key_id); return null; end $$`;
    await sql`create trigger writes after update on keys for each row execute function count_write()`;
    const stamp = () => sql`select changed_xid::text from keys where key_id = ${keyId}`;
    const before = await stamp();
    const [from, lastsMs] = [Date.now(), 4_500];
    let calls = 0;
    const verifyRepeatedly = async () => {
      for (; Date.now() < from + lastsMs; calls++) expect(await verify(key)).toBe("VALID");
    };
    await Promise.all(Array.from({ length: 8 }, verifyRepeatedly));
    const seconds = (Date.now() - from) / 1_000;
    const writes = await sql`select from writes where key_id = ${keyId}`;
    expect(writes.length).toBeGreaterThan(0);
    expect(writes.length, `writes for ${calls} calls in ${seconds} s`).toBeLessThanOrEqual(seconds + 1);
    expect(await stamp()).toEqual(before);
  });
});

describe("no last-used time is lost", () => {
  it("at graceful shutdown: the next service on the database returns the times of just before", async () => {
    const created = await Promise.all(Array.from({ length: 20 }, () => createKey()));
    const from = Date.now();
    for (const { key } of created) expect(await verify(key)).toBe("VALID");
    await app.close();
    app = await openTestApp({ databaseUrl: database.url });
    for (const { keyId } of created) {
      const returned = await succeed<{ lastUsedAt?: number }>(app.httpUrl, "keys.getKey", caller, { keyId });
      expect(returned.lastUsedAt).toBeGreaterThanOrEqual(from);
    }
  });

  it("during an outage of PostgreSQL: it is stored when PostgreSQL is back", async () => {
    const created = await createKey();
    const proxy = await openProxy(database.url);
    const lines: string[] = [];
    const log = createLog("warn", { destination: { write: (line: string) => void lines.push(line) } });
    const behind = await openTestApp({ databaseUrl: proxy.url, log });
    try {
      const from = Date.now();
      await succeed(behind.httpUrl, "keys.verifyKey", caller, { key: created.key });
      const until = Date.now();
      proxy.cut();
      await expect.poll(() => lines.join(), { timeout: 10_000 }).toMatch(/last-used/);
      expect(await storedTime(created)).toBeUndefined();
      proxy.resume();
      await expectStored(created, from, until);
    } finally {
      await behind.close();
      await proxy.close();
    }
  });

  it("to a service whose clock is behind: an earlier time never replaces a later one", async () => {
    const created = await createKey();
    const used = await createKey();
    const hourAhead = Date.now() + 3_600_000;
    await sql`update keys set last_used_at = ${new Date(hourAhead)} where key_id = ${created.keyId}`;
    for (const { key } of [created, used]) expect(await verify(key)).toBe("VALID");
    await app.close();
    expect(await storedTime(used)).toBeLessThan(hourAhead);
    expect(await storedTime(created)).toBe(hourAhead);
  });
});
