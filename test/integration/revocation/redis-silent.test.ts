import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { createLog } from "../../../src/observe/log.js";
import { succeed } from "../../support/calls.js";
import { createWorkspace, expectSuccess, send } from "../../support/clients/http-requests.js";
import { listKeys, redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, redisAt, type TestApp } from "../../support/harness.js";
import { type BackendProxy, openProxy } from "../../support/proxy.js";
import { median, startStopwatch } from "../../support/stopwatch.js";

/** The timeout of a Redis command. */
const timeoutMs = 50;

describe("when Redis stops answering", () => {
  let proxy: BackendProxy;
  let app: TestApp;
  let withoutRedis: TestApp;
  let keys: string[];
  let fresh: string[];
  const logged: { level: number; msg: string }[] = [];

  beforeAll(async () => {
    proxy = await openProxy(inject("redisUrl"));
    const log = createLog("info", { destination: { write: (line: string) => void logged.push(JSON.parse(line)) } });
    app = await openTestApp({ redis: redisAt(proxy.url), metricsPort: 0, log });
    withoutRedis = await openTestApp({ databaseUrl: app.databaseUrl, redis: undefined });
    await redisInUse(app);
    const { key } = await createWorkspace(app.httpUrl);
    const create = () => succeed<{ key: string }>(app.httpUrl, "keys.createKey", key, { scopes: ["keys.read"] });
    const created: string[] = [];
    while (created.length < 110) created.push((await create()).key);
    keys = created.slice(0, 100);
    fresh = created.slice(100);
  });
  afterAll(async () => {
    await withoutRedis.close();
    await app.close();
    await proxy.close();
  });

  const redisLines = () => logged.filter(({ msg }) => msg.includes("Redis")).map(({ level, msg }) => [level, msg]);
  const readiness = async () => expectSuccess(await send(app.httpUrl, "/readyz", { method: "GET" }));
  const gauge = async () =>
    (await (await fetch(app.metricsUrl ?? "")).text()).match(/^latchkey_redis_in_use (\d)$/m)?.[1];

  it("only the first few calls are delayed; the others are answered as fast as without Redis", async () => {
    expect(await gauge()).toBe("1");
    const baseline = await timeCalls(withoutRedis, keys);
    logged.length = 0; // a busy machine may have delayed Redis before this, too
    proxy.stall();
    const stalled = await timeCalls(app, keys);
    const delayed = stalled.filter((ms) => ms >= timeoutMs + median(baseline)).length;
    expect(delayed).toBeLessThan(keys.length / 4);
    expect(median(stalled)).toBeLessThan(3 * median(baseline) + timeoutMs / 5);
    // The timeout bounds the delayed calls, too.
    expect(median(stalled.slice(0, 3))).toBeLessThan(10 * timeoutMs + median(baseline));
  });

  it("the service stays ready, and reports that Redis is bypassed", async () => {
    expect(await readiness()).toMatchObject({ status: "ready", redis: "out of use" });
    expect(await gauge()).toBe("0");
  });

  it("the outage is logged once, after it has lasted for a while", async () => {
    const warning = [[40, expect.stringMatching(/^Redis is unavailable/)]];
    await expect.poll(redisLines, { timeout: 10_000 }).toEqual(warning);
    await timeCalls(app, fresh);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    expect(redisLines()).toEqual(warning);
  });

  it("and answers again, it is soon used again without a restart, and that is logged", async () => {
    proxy.resume();
    const elapsed = startStopwatch();
    await redisInUse(app);
    expect(elapsed()).toBeLessThan(5_000);
    expect(await gauge()).toBe("1");
    expect(redisLines().slice(1)).toEqual([[30, "Redis is available again"]]);
  });
});

/** Makes one call with each key, one after the other, and returns the duration of each. */
async function timeCalls(app: TestApp, keys: readonly string[]): Promise<number[]> {
  const times: number[] = [];
  for (const key of keys) {
    const elapsed = startStopwatch();
    expectSuccess(await listKeys(app, key));
    times.push(elapsed());
  }
  return times;
}
