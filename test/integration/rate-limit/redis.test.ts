import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it, onTestFinished } from "vitest";
import { createRequestCounter } from "../../../src/rate-limit/counter.js";
import { noCache } from "../../../src/storage/redis/client.js";
import { createWorkspace, expectSuccess, send } from "../../support/clients/http-requests.js";
import { callers } from "../../support/clients/rate-limit-headers.js";
import { redisInUse } from "../../support/clients/verify-calls.js";
import { longRedisTimeouts, openTestApp, redisAt, type TestApp } from "../../support/harness.js";
import { type BackendProxy, openProxy } from "../../support/proxy.js";
import { findServer, startCluster } from "../../support/redis-nodes.js";

const rateLimit = { requests: 1_000, windowSeconds: 600 };

/** Makes one call on this replica, and returns how many requests of the workspace remain. */
async function remainingAfterCall(app: TestApp, key: string): Promise<number> {
  const { code, limit } = await callers.http(app, key);
  expect(code).toBe("ok");
  return Number(/;r=(\d+);/.exec(limit ?? "")?.[1]);
}

async function isInUse(app: TestApp): Promise<boolean> {
  const readiness = expectSuccess(await send(app.httpUrl, "/readyz", { method: "GET" }));
  return (readiness as { redis: string }).redis === "in use";
}

describe("rate-limited requests are counted", () => {
  let redis: Redis;
  let proxy: BackendProxy;
  let app: TestApp;
  /** Connects to Redis directly, without the proxy. */
  let other: TestApp;

  beforeAll(async () => {
    redis = new Redis(inject("redisUrl"));
    proxy = await openProxy(inject("redisUrl"));
    app = await openTestApp({ rateLimit, redis: redisAt(proxy.url), ...longRedisTimeouts });
    other = await openTestApp({ rateLimit, databaseUrl: app.databaseUrl });
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

  it("by each process during an outage of Redis, and by all together once it is back", async () => {
    const { key } = await createWorkspace(app.httpUrl);
    expect(await remainingAfterCall(app, key)).toBe(999);
    expect(await remainingAfterCall(other, key)).toBe(998);
    proxy.cut();
    await expect.poll(() => isInUse(app), { timeout: 10_000 }).toBe(false);
    expect(await remainingAfterCall(app, key)).toBe(999);
    expect(await remainingAfterCall(app, key)).toBe(998);
    expect(await remainingAfterCall(other, key)).toBe(997);
    proxy.resume();
    await redisInUse(app);
    expect(await remainingAfterCall(app, key)).toBe(996);
  });

  it("by each process while Redis hangs, with only a short delay of calls", async () => {
    const impatient = await openTestApp({ rateLimit, redis: redisAt(proxy.url), databaseUrl: app.databaseUrl });
    onTestFinished(() => impatient.close());
    await redisInUse(impatient);
    const { workspaceId, key } = await createWorkspace(app.httpUrl);
    expect(await remainingAfterCall(other, key)).toBe(999);
    proxy.stall();
    for (let left = 999; left > 969; left--) expect(await remainingAfterCall(impatient, key)).toBe(left);
    expect(await redis.get(`latchkey:rate:600:${workspaceId}`)).toBe("1");
    expect(await remainingAfterCall(other, key)).toBe(998);
  });

  it("by each process if their Redis key has a value of another type", async () => {
    const { workspaceId, key } = await createWorkspace(app.httpUrl);
    await redis.lpush(`latchkey:rate:600:${workspaceId}`, "not a number");
    expect(await remainingAfterCall(app, key)).toBe(999);
    expect(await remainingAfterCall(other, key)).toBe(999);
  });

  it("in another window after the window length is changed", async () => {
    const { key } = await createWorkspace(app.httpUrl);
    expect(await remainingAfterCall(other, key)).toBe(999);
    const changed = await openTestApp({
      rateLimit: { requests: 1_000, windowSeconds: 60 },
      databaseUrl: app.databaseUrl,
    });
    try {
      await redisInUse(changed);
      expect(await remainingAfterCall(changed, key)).toBe(999);
    } finally {
      await changed.close();
    }
  });
});

it("after a Redis timeout for a workspace, not every request of it sends a command again", async () => {
  let commands = 0;
  const hanging = async () => {
    commands += 1;
    return undefined;
  };
  const counter = createRequestCounter(rateLimit, {
    ...noCache,
    inUse: true,
    isCluster: false,
    client: {} as Redis,
    store: hanging,
  });
  for (let used = 1; used <= 100; used++) expect(await counter.count("ws_1")).toMatchObject({ used });
  expect(commands).toBeLessThan(10);
  const commandsBefore = commands;
  expect(await counter.count("ws_2")).toMatchObject({ used: 1 });
  expect(commands).toBe(commandsBefore + 1);
});

it("a bypassed Redis gets no command", async () => {
  const store = () => expect.fail("Redis got a command");
  const counter = createRequestCounter(rateLimit, {
    ...noCache,
    inUse: false,
    isCluster: false,
    client: {} as Redis,
    store,
  });
  expect(await counter.count("ws_1")).toMatchObject({ used: 1 });
});

it("a window has a remaining time of at least 1 ms, even if Redis returns 0", async () => {
  // The result of the library's script: the number of requests, and the remaining milliseconds.
  const client = { rlflxIncr: async () => [1_001, 0] } as unknown as Redis;
  const store = <T>(_operation: string, command: () => Promise<T>) => command();
  const counter = createRequestCounter(rateLimit, { ...noCache, inUse: true, isCluster: false, client, store });
  expect(await counter.count("ws_1")).toEqual({ used: 1_001, msLeft: 1 });
});

it("a window that would end too late, after the clock of Redis was set back, ends", async () => {
  const app = await openTestApp({ rateLimit: { requests: 1, windowSeconds: 60 } });
  onTestFinished(() => app.close());
  await redisInUse(app);
  const redis = new Redis(inject("redisUrl"));
  onTestFinished(() => redis.disconnect());
  const { workspaceId, key } = await createWorkspace(app.httpUrl);
  expect(await remainingAfterCall(app, key)).toBe(0);
  const name = `latchkey:rate:60:${workspaceId}`;
  await redis.pexpire(name, 3_600_000);
  expect((await callers.http(app, key)).code).toBe("limits/rate_limited");
  expect(await redis.exists(name)).toBe(0);
});

it("a service without Redis counts in its own memory", async () => {
  const app = await openTestApp({ rateLimit: { requests: 2, windowSeconds: 600 }, redis: undefined });
  try {
    const { key } = await createWorkspace(app.httpUrl);
    expect([await remainingAfterCall(app, key), await remainingAfterCall(app, key)]).toEqual([1, 0]);
    expect(await callers.grpc(app, key)).toMatchObject({ code: "limits/rate_limited" });
  } finally {
    await app.close();
  }
});

it("in a cluster, every node counts some workspaces, for all replicas", { timeout: 60_000 }, async (context) => {
  const nodes = await startCluster(findServer(context), 3);
  const redis = { urls: nodes.map(({ url }) => url), cluster: true };
  const app = await openTestApp({ rateLimit, redis, ...longRedisTimeouts });
  onTestFinished(() => app.close());
  const other = await openTestApp({ rateLimit, redis, ...longRedisTimeouts, databaseUrl: app.databaseUrl });
  onTestFinished(() => other.close());
  for (const replica of [app, other]) await redisInUse(replica);

  // Repeats until each node has counted for both replicas. The node of a workspace is random.
  const countOnce = async () => {
    const { workspaceId, key } = await createWorkspace(app.httpUrl);
    expect(await remainingAfterCall(app, key)).toBe(999);
    expect(await remainingAfterCall(other, key)).toBe(998);
    const name = `latchkey:rate:600:${workspaceId}`;
    for (const node of nodes) if ((await node.redis.get(name).catch(() => null)) === "2") counted.add(node.url);
    return counted.size;
  };
  const counted = new Set<string>();
  await expect.poll(countOnce, { timeout: 15_000, interval: 1 }).toBe(nodes.length);
});
