import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it, onTestFinished } from "vitest";
import { createRequestCounter } from "../../../src/rate-limit/counter.js";
import { noCache } from "../../../src/storage/redis/client.js";
import { ask, createWorkspace, expectSuccess } from "../../support/clients/http-requests.js";
import { redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, patientWithRedis, redisAt, type TestApp } from "../../support/harness.js";
import { type BackendProxy, openProxy } from "../../support/proxy.js";
import { findServer, startCluster } from "../../support/redis-nodes.js";
import { callers } from "./callers.js";

const rateLimit = { requests: 1_000, windowSeconds: 600 };

/** How many requests of a workspace are left after one more, by this replica. */
async function leftAfterOne(app: TestApp, key: string): Promise<number> {
  const { code, limit } = await callers.http(app, key);
  expect(code).toBe("ok");
  return Number(/;r=(\d+);/.exec(limit ?? "")?.[1]);
}

async function isInUse(app: TestApp): Promise<boolean> {
  const standing = expectSuccess(await ask(app.httpUrl, "/readyz", { method: "GET" }));
  return (standing as { redis: string }).redis === "in use";
}

describe("requests are counted", () => {
  let redis: Redis;
  let proxy: BackendProxy;
  let app: TestApp;
  /** Always reaches Redis, past the proxy. */
  let other: TestApp;

  beforeAll(async () => {
    redis = new Redis(inject("redisUrl"));
    proxy = await openProxy(inject("redisUrl"));
    app = await openTestApp({ rateLimit, redis: redisAt(proxy.url), ...patientWithRedis });
    other = await openTestApp({ rateLimit, databaseUrl: app.databaseUrl, ...patientWithRedis });
  });
  beforeEach(async () => {
    proxy.resume();
    for (const replica of [app, other]) await redisInUse(replica);
  });
  afterAll(async () => {
    redis.disconnect();
    await other.close();
    await app.close();
    await proxy.close();
  });

  it("by each process for itself while Redis is away, and by all together once it is back", async () => {
    const { key } = await createWorkspace(app.httpUrl);
    expect(await leftAfterOne(app, key)).toBe(999);
    expect(await leftAfterOne(other, key)).toBe(998);
    proxy.cut();
    await expect.poll(() => isInUse(app), { timeout: 10_000 }).toBe(false);
    expect(await leftAfterOne(app, key)).toBe(999);
    expect(await leftAfterOne(app, key)).toBe(998);
    expect(await leftAfterOne(other, key)).toBe(997);
    proxy.resume();
    await redisInUse(app);
    expect(await leftAfterOne(app, key)).toBe(996);
  });

  it("by each process for itself while Redis hangs, which holds up nobody for long", async () => {
    const hasty = await openTestApp({ rateLimit, redis: redisAt(proxy.url), databaseUrl: app.databaseUrl });
    onTestFinished(() => hasty.close());
    await redisInUse(hasty);
    const { workspaceId, key } = await createWorkspace(app.httpUrl);
    expect(await leftAfterOne(other, key)).toBe(999);
    proxy.stall();
    for (let left = 999; left > 969; left--) expect(await leftAfterOne(hasty, key)).toBe(left);
    expect(await redis.get(`latchkey:rate:600:${workspaceId}`)).toBe("1");
    expect(await leftAfterOne(other, key)).toBe(998);
  });

  it("here, where Redis has something else under their name", async () => {
    const { workspaceId, key } = await createWorkspace(app.httpUrl);
    await redis.lpush(`latchkey:rate:600:${workspaceId}`, "not a number");
    expect(await leftAfterOne(app, key)).toBe(999);
    expect(await leftAfterOne(other, key)).toBe(999);
  });

  it("in another window where that is of another length", async () => {
    const { key } = await createWorkspace(app.httpUrl);
    expect(await leftAfterOne(other, key)).toBe(999);
    const changed = await openTestApp({
      rateLimit: { requests: 1_000, windowSeconds: 60 },
      databaseUrl: app.databaseUrl,
      ...patientWithRedis,
    });
    try {
      await redisInUse(changed);
      expect(await leftAfterOne(changed, key)).toBe(999);
    } finally {
      await changed.close();
    }
  });
});

it("a Redis that does not count a workspace in time is not asked again for every request of it", async () => {
  let asked = 0;
  const hanging = async () => {
    asked += 1;
    return undefined;
  };
  const windows = createRequestCounter(rateLimit, { ...noCache, inUse: true, client: {} as Redis, store: hanging });
  for (let used = 1; used <= 100; used++) expect(await windows.count("ws_1")).toMatchObject({ used });
  expect(asked).toBeLessThan(10);
  const askedBefore = asked;
  expect(await windows.count("ws_2")).toMatchObject({ used: 1 });
  expect(asked).toBe(askedBefore + 1);
});

it("a Redis that is passed by is not asked to count", async () => {
  const store = () => expect.fail("it was asked");
  const windows = createRequestCounter(rateLimit, { ...noCache, inUse: false, client: {} as Redis, store });
  expect(await windows.count("ws_1")).toMatchObject({ used: 1 });
});

it("a window has an end also in its last moment, when Redis says that nothing is left of it", async () => {
  // In the words of the library's script: how many were counted, and for how many milliseconds they still are.
  const client = { rlflxIncr: async () => [1_001, 0] } as unknown as Redis;
  const store = <T>(_operation: string, command: () => Promise<T>) => command();
  const windows = createRequestCounter(rateLimit, { ...noCache, inUse: true, client, store });
  expect(await windows.count("ws_1")).toEqual({ used: 1_001, msLeft: 1 });
});

it("a service without Redis counts by itself", async () => {
  const app = await openTestApp({ rateLimit: { requests: 2, windowSeconds: 600 }, redis: undefined });
  try {
    const { key } = await createWorkspace(app.httpUrl);
    expect([await leftAfterOne(app, key), await leftAfterOne(app, key)]).toEqual([1, 0]);
    expect(await callers.grpc(app, key)).toMatchObject({ code: "limits/rate_limited" });
  } finally {
    await app.close();
  }
});

it("in a cluster, every node counts some workspaces, for all replicas", { timeout: 60_000 }, async (context) => {
  const nodes = await startCluster(findServer(context), 3);
  const redis = { urls: nodes.map(({ url }) => url), cluster: true };
  const app = await openTestApp({ rateLimit, redis, ...patientWithRedis });
  onTestFinished(() => app.close());
  const other = await openTestApp({ rateLimit, redis, ...patientWithRedis, databaseUrl: app.databaseUrl });
  onTestFinished(() => other.close());
  for (const replica of [app, other]) await redisInUse(replica);

  // Until each node has counted for both: which node has a workspace is chance.
  const counting = async () => {
    const { workspaceId, key } = await createWorkspace(app.httpUrl);
    expect(await leftAfterOne(app, key)).toBe(999);
    expect(await leftAfterOne(other, key)).toBe(998);
    const name = `latchkey:rate:600:${workspaceId}`;
    for (const node of nodes) if ((await node.redis.get(name).catch(() => null)) === "2") counted.add(node.url);
    return counted.size;
  };
  const counted = new Set<string>();
  await expect.poll(counting, { timeout: 15_000, interval: 1 }).toBe(nodes.length);
});
