import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { type BehindProxy, openBehindProxy } from "../../support/behind-proxy.js";
import { succeed } from "../../support/calls.js";
import { createWorkspace, post } from "../../support/clients/http-requests.js";
import { callGrpc, callHttp } from "../../support/clients/timed-calls.js";
import { storedCredits } from "../../support/credit-rows.js";
import { openTestApp } from "../../support/harness.js";
import { openOwnPostgres } from "../../support/own-postgres.js";

interface CreatedKey {
  readonly keyId: string;
  readonly key: string;
}

describe.each(["refuses every connection", "stops answering"])("while PostgreSQL %s", (failure) => {
  let setting: BehindProxy;
  let limited: CreatedKey;
  let unlimited: CreatedKey;

  beforeAll(async () => {
    // A long lease: keys stay cached, so that only their credits need PostgreSQL.
    setting = await openBehindProxy(5_000);
    const { app, key } = setting;
    limited = await succeed(app.httpUrl, "keys.createKey", key, { credits: { remaining: 1_000 } });
    unlimited = await succeed(app.httpUrl, "keys.createKey", key, {});
  }, 120_000);
  afterAll(() => setting.close());

  const verify = (call: typeof callHttp, { key }: CreatedKey) => call(setting.app, "verifyKey", setting.key, { key });

  it("a cached key with credits is refused as unavailable; one without is served while the lease lasts", async () => {
    const { proxy, sql } = setting;
    for (const call of [callHttp, callGrpc]) {
      for (const key of [limited, unlimited]) expect((await verify(call, key)).outcome).toBe("OK");
    }
    const before = await storedCredits(sql, limited.keyId);
    if (failure === "stops answering") proxy.stall();
    else proxy.cut();
    expect((await verify(callHttp, unlimited)).outcome).toBe("OK");
    const refused = await Promise.all([callHttp, callGrpc, callHttp, callGrpc].map((call) => verify(call, limited)));
    expect(refused.map(({ outcome }) => outcome)).toEqual(Array(4).fill("UNAVAILABLE"));
    proxy.resume();
    let attempts = 0;
    const isServed = async () => {
      attempts += 1;
      return (await verify(callHttp, limited)).outcome;
    };
    await expect.poll(isServed, { timeout: 20_000 }).toBe("OK");
    // Statements that were sent may have spent; nothing else has.
    const [left] = Object.values(await storedCredits(sql, limited.keyId));
    const [had = Number.NaN] = Object.values(before);
    expect(left).toBeLessThan(had);
    expect(left).toBeGreaterThanOrEqual(had - 4 - attempts);
  });
});

it("after crashes of PostgreSQL under load, credits used are at least the acknowledged and at most the attempted spends", async () => {
  const own = await openOwnPostgres();
  const app = await openTestApp({ databaseUrl: own.url });
  const sql = openSql(own.url, { max: 1, onnotice: () => {}, backoff: () => 0.1 });
  try {
    const { key: caller } = await createWorkspace(app.httpUrl);
    const remaining = 1_000_000;
    const { key, keyId } = await succeed<CreatedKey>(app.httpUrl, "keys.createKey", caller, { credits: { remaining } });
    let [attempted, acknowledged, stopped] = [0, 0, false];
    const statuses = new Set<number>();
    const working = Array.from({ length: 8 }, async () => {
      while (!stopped) {
        attempted += 1;
        const { status, text } = await post(app.httpUrl, "/v2/keys.verifyKey", caller, { key });
        statuses.add(status);
        if (status === 200 && JSON.parse(text).data.code === "VALID") acknowledged += 1;
      }
    });
    for (const mode of ["immediate", "fast", "immediate"] as const) {
      const before = acknowledged;
      await expect.poll(() => acknowledged, { timeout: 20_000 }).toBeGreaterThan(before + 50);
      await own.restart(mode);
    }
    const before = acknowledged;
    await expect.poll(() => acknowledged, { timeout: 20_000 }).toBeGreaterThan(before + 50);
    stopped = true;
    await Promise.all(working);
    const used = remaining - (Object.values(await storedCredits(sql, keyId))[0] ?? Number.NaN);
    expect(used).toBeGreaterThanOrEqual(acknowledged);
    expect(used).toBeLessThanOrEqual(attempted);
    expect([...statuses].sort()).toEqual([200, 503]);
  } finally {
    await app.close();
    await sql.end({ timeout: 1 });
    await own.close();
  }
}, 120_000);
