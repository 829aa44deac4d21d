import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { countInRedis } from "../../../src/limiter/count-script.js";
import { createLog } from "../../../src/observe/log.js";
import { connectRedis } from "../../../src/storage/redis/client.js";
import { succeed } from "../../support/calls.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { callGrpc, callHttp } from "../../support/clients/timed-calls.js";
import { redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, redisAt, type TestApp } from "../../support/harness.js";
import { readMetric } from "../../support/metrics.js";
import { type BackendProxy, openProxy } from "../../support/proxy.js";
import { type RedisServer, startRedis } from "../../verification/faults/redis-server.js";

let server: RedisServer;
let proxy: BackendProxy;
let app: TestApp;
let key: string;
const logged: string[] = [];

beforeAll(async () => {
  server = await startRedis();
  proxy = await openProxy(server.url);
  const write = (line: string) => void logged.push(JSON.parse(line).msg);
  app = await openTestApp({
    redis: redisAt(proxy.url),
    metricsPort: 0,
    log: createLog("info", { destination: { write } }),
  });
  key = (await createWorkspace(app.httpUrl)).key;
});
afterAll(async () => {
  await app?.close();
  await proxy?.close();
  await server?.kill();
});

/** Calls with keys that are not cached yet are all served, over both protocols. */
async function expectServed(): Promise<void> {
  for (let round = 0; round < 5; round++) {
    const fresh = await succeed<{ key: string }>(app.httpUrl, "keys.createKey", key, { scopes: ["keys.read"] });
    for (const call of [callHttp, callGrpc])
      expect(await call(app, "listKeys", fresh.key)).toMatchObject({ outcome: "OK" });
  }
}

const countLogged = (pattern: RegExp) => logged.filter((line) => pattern.test(line)).length;

it("a full Redis is still read, calls are served, and the start and end of the outage are logged once", async () => {
  await redisInUse(app);
  await server.admin.config("SET", "maxmemory-policy", "noeviction");
  await server.admin.config("SET", "maxmemory", "1");
  const before = await server.admin.dbsize();
  await expectServed();
  expect(await server.admin.dbsize()).toBe(before);
  expect(await readMetric(app, "redis_in_use")).toBe(1);
  expect(countLogged(/Redis refuses writes/)).toBe(1);

  await server.admin.config("SET", "maxmemory", "0");
  await expectServed();
  await expect.poll(() => server.admin.dbsize()).toBeGreaterThan(before);
  expect([countLogged(/Redis refuses writes/), countLogged(/Redis accepts writes again/)]).toEqual([1, 1]);
});

it("a full Redis cannot count requests for rate limits, and stays in use as a cache", async () => {
  const records: { msg: string; operation?: string }[] = [];
  const log = createLog("info", { destination: { write: (line: string) => void records.push(JSON.parse(line)) } });
  const rateLimit = { requests: 1_000, windowSeconds: 600 };
  const limited = await openTestApp({ redis: redisAt(server.url), rateLimit, metricsPort: 0, log });
  onTestFinished(() => limited.close());
  await redisInUse(limited);
  const keys: string[] = [];
  for (let number = 0; number < 10; number++) keys.push((await createWorkspace(limited.httpUrl)).key);
  for (const cached of keys) await callHttp(limited, "listKeys", cached);

  await server.admin.config("SET", "maxmemory-policy", "noeviction");
  await server.admin.config("SET", "maxmemory", "1");
  onTestFinished(() => server.admin.config("SET", "maxmemory", "0").then(() => {}));
  for (const cached of keys) {
    expect(await callHttp(limited, "listKeys", cached)).toMatchObject({ outcome: "OK" });
    expect(await readMetric(limited, "redis_in_use")).toBe(1);
  }
  const refusedCounts = records.filter(({ operation }) => operation === "EVALSHA");
  expect(refusedCounts).toMatchObject([{ msg: "Redis refuses writes; existing entries are still read" }]);
});

it("a Redis that deletes entries when it is full is reported, because it would forget counters of rate limits", async () => {
  const records: { msg: string; level: number; policy?: string }[] = [];
  const log = createLog("info", { destination: { write: (line: string) => void records.push(JSON.parse(line)) } });
  await server.admin.config("SET", "maxmemory", "100000000");
  await server.admin.config("SET", "maxmemory-policy", "allkeys-lru");
  onTestFinished(async () => {
    await server.admin.config("SET", "maxmemory", "0");
    await server.admin.config("SET", "maxmemory-policy", "noeviction");
  });
  const reported = () => records.filter(({ msg }) => /maxmemory-policy noeviction/.test(msg));
  const evicting = await openTestApp({ redis: redisAt(server.url), metricsPort: 0, log });
  onTestFinished(() => evicting.close());
  await expect.poll(reported).toMatchObject([{ policy: "allkeys-lru", level: 40 }]);

  await server.admin.config("SET", "maxmemory-policy", "noeviction");
  records.length = 0;
  const keeping = await openTestApp({ redis: redisAt(server.url), metricsPort: 0, log });
  onTestFinished(() => keeping.close());
  await redisInUse(keeping);
  await expectServed();
  expect(reported()).toEqual([]);
});

it("a Redis paused by SIGSTOP is bypassed without blocking calls, and used again when it resumes", async () => {
  await redisInUse(app);
  server.freeze();
  await expectServed();
  await expect.poll(() => readMetric(app, "redis_in_use")).toBe(0);
  server.thaw();
  await redisInUse(app);
  await expectServed();
});

it("a restarted Redis is bypassed without blocking calls while it loads its data, and used afterwards", async () => {
  await redisInUse(app);
  const loading = createServer((socket) => {
    socket.on("error", () => {});
    socket.on("data", () => socket.write("-LOADING Redis is loading the dataset in memory\r\n"));
  }).listen(0, "127.0.0.1");
  onTestFinished(() => void loading.close());
  await once(loading, "listening");
  proxy.retarget(`redis://127.0.0.1:${(loading.address() as AddressInfo).port}`);
  await expectServed();
  expect(await readMetric(app, "redis_in_use")).toBe(0);

  proxy.retarget(server.url);
  await redisInUse(app);
  const before = await server.admin.dbsize();
  await expectServed();
  await expect.poll(() => server.admin.dbsize()).toBeGreaterThan(before);
});

it("a connection that leads to a replica after a failover is replaced, and counts and writes reach the primary", async () => {
  const demoted = await startRedis();
  onTestFinished(() => demoted.kill());
  const address = await openProxy(demoted.url);
  onTestFinished(address.close);
  const redis = connectRedis({ urls: [address.url], cluster: false }, createLog("silent"), 1_000);
  onTestFinished(() => redis.close());
  await expect.poll(() => redis.inUse, { timeout: 10_000 }).toBe(true);
  const use = { key: "latchkey:limit:{ws_1}:requests:1000", limit: 5, durationMs: 1_000, cost: 1 };
  const count = () => redis.store("EVALSHA", () => countInRedis(redis.client, [{ uses: [use], mayBegin: true }]));
  expect(await count()).toBeDefined();

  await demoted.admin.replicaof("127.0.0.1", 1);
  expect(await count()).toBeUndefined();
  address.connectNewTo(server.url);
  await expect.poll(count, { timeout: 10_000 }).toBeDefined();
  await redis.set("latchkey:written", "now", 10_000);
  expect(await server.admin.get("latchkey:written")).toBe("now");
});
