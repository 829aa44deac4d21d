import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { succeed } from "../../support/calls.js";
import { ask, createWorkspace, expectSuccess } from "../../support/clients/http-requests.js";
import { listKeys, redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, redisAt, type TestApp } from "../../support/harness.js";
import { type BackendProxy, openProxy } from "../../support/proxy.js";
import { startStopwatch } from "../../support/stopwatch.js";

/** How long a command to Redis may take. */
const limitMs = 50;

describe("when Redis falls silent", () => {
  let proxy: BackendProxy;
  let app: TestApp;
  let without: TestApp;
  let keys: string[];
  let fresh: string[];
  const logged: { level: number; msg: string }[] = [];

  beforeAll(async () => {
    proxy = await openProxy(inject("redisUrl"));
    const log = pino({ level: "info" }, { write: (line: string) => void logged.push(JSON.parse(line)) });
    app = await openTestApp({ redis: redisAt(proxy.url), metricsPort: 0, log });
    without = await openTestApp({ databaseUrl: app.databaseUrl, redis: undefined });
    await redisInUse(app);
    const { key } = await createWorkspace(app.httpUrl);
    const create = () => succeed<{ key: string }>(app.httpUrl, "keys.createKey", key, { scopes: ["keys.read"] });
    const created: string[] = [];
    while (created.length < 110) created.push((await create()).key);
    keys = created.slice(0, 100);
    fresh = created.slice(100);
  });
  afterAll(async () => {
    await without.close();
    await app.close();
    await proxy.close();
  });

  const redisLines = () => logged.filter(({ msg }) => msg.includes("Redis")).map(({ level, msg }) => [level, msg]);
  const standing = async () => expectSuccess(await ask(app.httpUrl, "/readyz", { method: "GET" }));
  const gauge = async () =>
    (await (await fetch(app.metricsUrl ?? "")).text()).match(/^latchkey_redis_in_use (\d)$/m)?.[1];

  it("only the first few callers pay for it; the others are answered as fast as without Redis", async () => {
    expect(await gauge()).toBe("1");
    const plain = await timeCalls(without, keys);
    logged.length = 0; // until now, a busy machine may have made Redis late, too
    proxy.stall();
    const silent = await timeCalls(app, keys);
    const paid = silent.filter((ms) => ms >= limitMs + median(plain)).length;
    expect(paid).toBeLessThan(keys.length / 4);
    expect(median(silent)).toBeLessThan(3 * median(plain) + limitMs / 5);
    // The limit holds for those who pay, too.
    expect(median(silent.slice(0, 3))).toBeLessThan(10 * limitMs + median(plain));
  });

  it("the service stays ready, and says that Redis is unavailable", async () => {
    expect(await standing()).toMatchObject({ status: "ready", redis: "out of use" });
    expect(await gauge()).toBe("0");
  });

  it("the log says so once, when it has lasted", async () => {
    const warning = [[40, expect.stringMatching(/^Redis is unavailable/)]];
    await expect.poll(redisLines, { timeout: 10_000 }).toEqual(warning);
    await timeCalls(app, fresh);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    expect(redisLines()).toEqual(warning);
  });

  it("and answers again, it is in use again soon, without a restart, and the log says so", async () => {
    proxy.resume();
    const elapsed = startStopwatch();
    await redisInUse(app);
    expect(elapsed()).toBeLessThan(5_000);
    expect(await gauge()).toBe("1");
    expect(redisLines().slice(1)).toEqual([[30, "Redis is available again"]]);
  });
});

/** Calls with each key once, one after the other; how long each call took. */
async function timeCalls(app: TestApp, keys: readonly string[]): Promise<number[]> {
  const times: number[] = [];
  for (const key of keys) {
    const elapsed = startStopwatch();
    expectSuccess(await listKeys(app, key));
    times.push(elapsed());
  }
  return times;
}

function median(values: readonly number[]): number {
  return values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)] ?? Number.NaN;
}
