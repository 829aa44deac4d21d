import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { pino } from "pino";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { callGrpc, callHttp } from "../../support/answered.js";
import { succeed } from "../../support/calls.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, redisAt, type TestApp } from "../../support/harness.js";
import { readMetric } from "../../support/metrics.js";
import { type BackendProxy, openProxy } from "../../support/proxy.js";
import { type RedisServer, startRedis } from "../../verification/faults/redis-server.js";

let server: RedisServer;
let proxy: BackendProxy;
let app: TestApp;
let key: string;
const said: string[] = [];

beforeAll(async () => {
  server = await startRedis();
  proxy = await openProxy(server.url);
  const write = (line: string) => void said.push(JSON.parse(line).msg);
  app = await openTestApp({
    redis: redisAt(proxy.url),
    metricsPort: 0,
    log: pino({ level: "info" }, { write }),
  });
  key = (await createWorkspace(app.httpUrl)).key;
});
afterAll(async () => {
  await app?.close();
  await proxy?.close();
  await server?.kill();
});

/** Calls with keys that nobody has asked about yet, through both protocols, are all served. */
async function expectServed(): Promise<void> {
  for (let times = 0; times < 5; times++) {
    const fresh = await succeed<{ key: string }>(app.httpUrl, "keys.createKey", key, { scopes: ["keys.read"] });
    for (const call of [callHttp, callGrpc])
      expect(await call(app, "listKeys", fresh.key)).toMatchObject({ outcome: "OK" });
  }
}

const saidOf = (words: RegExp) => said.filter((line) => words.test(line)).length;

it("a Redis that is full is still read, calls are served, and the log says once that it stores nothing, and that it does", async () => {
  await redisInUse(app);
  await server.admin.config("SET", "maxmemory-policy", "noeviction");
  await server.admin.config("SET", "maxmemory", "1");
  const before = await server.admin.dbsize();
  await expectServed();
  expect(await server.admin.dbsize()).toBe(before);
  expect(await readMetric(app, "redis_in_use")).toBe(1);
  expect(saidOf(/Redis refuses writes/)).toBe(1);

  await server.admin.config("SET", "maxmemory", "0");
  await expectServed();
  await expect.poll(() => server.admin.dbsize()).toBeGreaterThan(before);
  expect([saidOf(/Redis refuses writes/), saidOf(/Redis accepts writes again/)]).toEqual([1, 1]);
});

it("a Redis that is full cannot count requests, and stays in use for what it has", async () => {
  const told: { msg: string; operation?: string }[] = [];
  const log = pino({ level: "info" }, { write: (line: string) => void told.push(JSON.parse(line)) });
  const rateLimit = { requests: 1_000, windowSeconds: 600 };
  const limited = await openTestApp({ redis: redisAt(server.url), rateLimit, metricsPort: 0, log });
  onTestFinished(() => limited.close());
  await redisInUse(limited);
  const keys: string[] = [];
  for (let number = 0; number < 10; number++) keys.push((await createWorkspace(limited.httpUrl)).key);
  for (const held of keys) await callHttp(limited, "listKeys", held);

  await server.admin.config("SET", "maxmemory-policy", "noeviction");
  await server.admin.config("SET", "maxmemory", "1");
  onTestFinished(() => server.admin.config("SET", "maxmemory", "0").then(() => {}));
  for (const held of keys) {
    expect(await callHttp(limited, "listKeys", held)).toMatchObject({ outcome: "OK" });
    expect(await readMetric(limited, "redis_in_use")).toBe(1);
  }
  const counting = told.filter(({ operation }) => operation === "EVALSHA");
  expect(counting).toMatchObject([{ msg: "Redis refuses writes; existing entries are still read" }]);
});

it("a Redis that is stopped by SIGSTOP holds nobody up, and is used again when it goes on", async () => {
  await redisInUse(app);
  server.freeze();
  await expectServed();
  await expect.poll(() => readMetric(app, "redis_in_use")).toBe(0);
  server.thaw();
  await redisInUse(app);
  await expectServed();
});

it("a Redis that is restarted, and loads its data at first, holds nobody up, and is used when it has loaded", async () => {
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
