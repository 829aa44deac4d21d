import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, describe, expect, inject, it, onTestFinished } from "vitest";
import { countInRedis } from "../../../src/limiter/count-script.js";
import { redisInUse } from "../../support/clients/verify-calls.js";
import { redisAt } from "../../support/harness.js";
import { readMetric } from "../../support/metrics.js";
import { type BackendProxy, openProxy } from "../../support/proxy.js";
import { findServer, startCluster } from "../../support/redis-nodes.js";
import { openTwoReplicas, type TwoReplicas, tenMinutes } from "./two-replicas.js";

const limited = (limit: number) => ({
  ratelimits: [{ name: "requests", limit, duration: tenMinutes, autoApply: true }],
});

/** Verifies a key on a replica until it is refused. Returns the number of VALID results. */
async function admitted(replicas: TwoReplicas, replica: 0 | 1, secret: string): Promise<number> {
  for (let valid = 0; ; valid++) if (!(await replicas.verify(replica, secret)).valid) return valid;
}

describe("rate limits are counted", () => {
  let proxy: BackendProxy;
  /** Only the second reaches Redis through the proxy, and with the usual timeout. */
  let replicas: TwoReplicas;

  beforeAll(async () => {
    proxy = await openProxy(inject("redisUrl"));
    replicas = await openTwoReplicas({}, { redis: redisAt(proxy.url) });
  });
  afterEach(async () => {
    proxy.resume();
    await redisInUse(replicas.apps[1]);
  });
  afterAll(async () => {
    await replicas.close();
    await proxy.close();
  });

  it("by each process while Redis is away, and every result says so", async () => {
    const { key } = await replicas.call(0, "createKey", limited(3));
    expect(await replicas.verify(0, key)).toMatchObject({ ratelimits: [{ remaining: 2 }] });
    proxy.cut();
    const perProcess = () => readMetric(replicas.apps[1], "rate_limit_checks_total", { scope: "per_process" });
    const before = await perProcess();
    for (const remaining of [2, 1, 0]) {
      const result = await replicas.verify(1, key);
      expect(result).toMatchObject({ code: "VALID", ratelimits: [{ remaining, perProcess: true }] });
    }
    expect(await replicas.verify(1, key)).toMatchObject({
      code: "RATE_LIMITED",
      ratelimits: [{ exceeded: true, remaining: 0, perProcess: true }],
    });
    expect(await perProcess()).toBe(before + 4);
    const [shared] = (await replicas.verify(0, key)).ratelimits;
    expect(shared).toMatchObject({ remaining: 1 });
    expect(shared).not.toHaveProperty("perProcess");
  });

  it("by all together again, once Redis is back", async () => {
    const { key } = await replicas.call(0, "createKey", limited(3));
    proxy.cut();
    expect(await admitted(replicas, 1, key)).toBe(3);
    proxy.resume();
    await redisInUse(replicas.apps[1]);
    const isShared = async () =>
      !(await replicas.verify(1, key, { ratelimits: [{ name: "requests", cost: 0 }] })).ratelimits[0]?.perProcess;
    await expect.poll(isShared, { timeout: 10_000 }).toBe(true);
    expect((await admitted(replicas, 0, key)) + (await admitted(replicas, 1, key))).toBe(3);
  });

  it("so that no more than the limit passes without perProcess, although answers of Redis are lost", async () => {
    const limit = 20;
    const { key } = await replicas.call(0, "createKey", limited(limit));
    const look = (replica: 0 | 1) => replicas.verify(replica, key, { ratelimits: [{ name: "requests", cost: 0 }] });
    await expect.poll(async () => (await look(1)).ratelimits[0]?.perProcess, { timeout: 10_000 }).toBeUndefined();
    proxy.delayResponses(60_000); // commands arrive, and their answers come too late
    expect(await replicas.verify(1, key)).toMatchObject({ code: "VALID", ratelimits: [{ perProcess: true }] });
    const left = async () => (await look(0)).ratelimits[0]?.remaining;
    await expect.poll(left, { timeout: 10_000 }).toBe(limit - 1);
    const results = await Promise.all(
      Array.from({ length: 60 }, (_, index) => replicas.verify(index % 3 === 0 ? 1 : 0, key)),
    );
    const shared = results.filter(({ valid, ratelimits }) => valid && !ratelimits[0]?.perProcess);
    // Redis has counted the use whose answer was lost, and this process has admitted it.
    expect(shared.length + (await admitted(replicas, 0, key))).toBeLessThanOrEqual(limit - 1);
  });

  it.each<[string, (redis: Redis, counter: string) => Promise<unknown>]>([
    ["a value of another type", (redis, counter) => redis.lpush(counter, "1")],
    ["text", (redis, counter) => redis.set(counter, "not a number")],
    ["a fraction", (redis, counter) => redis.set(counter, "1.5")],
    ["infinity", (redis, counter) => redis.set(counter, "-inf")],
    ["NaN", (redis, counter) => redis.set(counter, "nan")],
  ])("by each process if a counter in Redis has %s", async (_what, corrupt) => {
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    const { keyId, key } = await replicas.call(0, "createKey", limited(3));
    await replicas.verify(0, key);
    const [counter = ""] = await redis.keys(`latchkey:limit:{${keyId}}:*`);
    expect(await redis.pttl(counter)).toBeGreaterThan(0);
    await redis.del(counter);
    await corrupt(redis, counter);
    const { key: other } = await replicas.call(0, "createKey", limited(3));
    // Concurrent verifications are counted by the same command.
    const [result, ...others] = await Promise.all([key, other, other].map((secret) => replicas.verify(0, secret)));
    expect(result).toMatchObject({ code: "VALID", ratelimits: [{ perProcess: true }] });
    expect(others.map(({ ratelimits }) => ratelimits[0]?.remaining).sort()).toEqual([1, 2]);
    for (const { ratelimits } of others) expect(ratelimits[0]).not.toHaveProperty("perProcess");
  });

  it("also after Redis has forgotten the script", async () => {
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    const { key } = await replicas.call(0, "createKey", limited(3));
    await replicas.verify(0, key);
    await redis.script("FLUSH");
    const [state] = (await replicas.verify(0, key)).ratelimits;
    expect(state).toMatchObject({ remaining: 1 });
    expect(state).not.toHaveProperty("perProcess");
  });
});

it("a service without Redis counts in its own memory, and says so", async () => {
  const replicas = await openTwoReplicas({}, { redis: undefined });
  onTestFinished(() => replicas.close());
  const { key } = await replicas.call(0, "createKey", limited(5));
  expect(await admitted(replicas, 1, key)).toBe(5);
  expect(await replicas.verify(1, key)).toMatchObject({ ratelimits: [{ perProcess: true }] });
  expect(await admitted(replicas, 0, key)).toBe(5);
});

it("in a cluster, every node counts for some keys, and one script all limits of a key", {
  timeout: 120_000,
}, async (context) => {
  const nodes = await startCluster(findServer(context), 3);
  const replicas = await openTwoReplicas({ redis: { urls: nodes.map(({ url }) => url), cluster: true } });
  onTestFinished(() => replicas.close());

  // Repeats until each node has counted for both replicas. The node of an identity is random.
  const counted = new Set<string>();
  const countOnce = async () => {
    const externalId = `owner ${Math.random()}`;
    const { identityId } = await replicas.call(0, "createIdentity", { externalId, ...limited(100) });
    const own = { ratelimits: [{ name: "{own}", limit: 3, duration: tenMinutes, autoApply: true }] };
    const { key } = await replicas.call(0, "createKey", { identityId, ...own });
    expect((await replicas.verify(0, key)).ratelimits).toEqual([
      expect.objectContaining({ name: "requests", remaining: 99 }),
      expect.objectContaining({ name: "{own}", remaining: 2 }),
    ]);
    const [shared] = (await replicas.verify(1, key)).ratelimits;
    expect(shared).toMatchObject({ remaining: 98 });
    expect(shared).not.toHaveProperty("perProcess");
    for (const { redis, url } of nodes) {
      if ((await redis.keys(`latchkey:limit:{${identityId}}:*`)).length === 2) counted.add(url);
    }
    const uses = [1, 2, 3].map((user) => ({ namespace: "n", identifier: `{${user}}`, limit: 3, duration: tenMinutes }));
    expect((await replicas.call(0, "multiLimit", { limits: uses })).limits[2]).not.toHaveProperty("perProcess");
    return counted.size;
  };
  await expect.poll(countOnce, { timeout: 60_000, interval: 1 }).toBe(nodes.length);
});

it("a window that would end too late, after the clock of Redis was set back, has its usual length again", async () => {
  const redis = new Redis(inject("redisUrl"));
  onTestFinished(() => redis.disconnect());
  const use = { key: `latchkey:limit:{${randomUUID()}}:requests:1000`, limit: 1, durationMs: 1_000, cost: 1 };
  const count = () => countInRedis(redis, [{ uses: [use], mayBegin: true }]);
  await count();
  await redis.pexpire(use.key, 3_600_000);
  const [readings] = await count();
  expect(readings).toMatchObject([{ used: 1, msLeft: 1_000 }]);
  expect(await redis.pttl(use.key)).toBeLessThanOrEqual(1_000);
});
