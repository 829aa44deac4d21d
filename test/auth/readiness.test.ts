import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { ask, expectFailure, expectSuccess } from "../gateway/http.js";
import { openTestApp, operatorKey, redisAt, type TestApp } from "../harness.js";
import { openProxy } from "../proxy.js";
import { callGrpc, callHttp } from "./answered.js";
import { type BehindProxy, openBehindProxy } from "./behind-proxy.js";
import { redisInUse } from "./calls.js";
import { readMetric } from "./vitals.js";

const readiness = (app: TestApp) => ask(app.httpUrl, "/readyz", { method: "GET" });

describe("readiness", () => {
  it("is told without a credential, with how the lease and Redis stand", async () => {
    const proxy = await openProxy(inject("redisUrl"));
    const app = await openTestApp({ redis: redisAt(proxy.url), metricsPort: 0 });
    try {
      await redisInUse(app);
      expect(expectSuccess(await readiness(app))).toEqual({ status: "ready", lease: "held", redis: "in use" });
      expect(await readMetric(app, "redis_in_use")).toBe(1);
      // Without Redis the service is slower, not unable.
      proxy.cut();
      await expect.poll(() => readMetric(app, "redis_in_use"), { timeout: 5_000 }).toBe(0);
      expect(expectSuccess(await readiness(app))).toEqual({ status: "ready", lease: "held", redis: "out of use" });
      proxy.resume();
      await redisInUse(app);
    } finally {
      await app.close();
      await proxy.close();
    }
  });

  it("a service that has no Redis says so", async () => {
    const app = await openTestApp({ redis: undefined });
    expect(expectSuccess(await readiness(app))).toEqual({ status: "ready", lease: "held", redis: "none" });
    await app.close();
  });
});

it.each(["/livez", "/v2/liveness"])("that the process runs is told at %s, without a credential", async (path) => {
  const app = await openTestApp({ redis: undefined });
  expect(expectSuccess(await ask(app.httpUrl, path, { method: "GET" }))).toEqual({ status: "alive" });
  await app.close();
});

describe("a replica whose lease time was changed in the database while it runs", () => {
  let setting: BehindProxy;
  let restarted: TestApp;

  beforeAll(async () => {
    setting = await openBehindProxy();
    const { app, key, sql, databaseUrl } = setting;
    expect((await callHttp(app, "listKeys", key)).outcome).toBe("OK");
    await sql`update lease set lease_ms = 100`;
    restarted = await openTestApp({ databaseUrl, metricsPort: 0 });
  });
  afterAll(async () => {
    await restarted.close();
    await setting.close();
  });

  it("refuses every key, for others may not wait as long as it holds", async () => {
    const { app, key } = setting;
    await expect.poll(async () => (await callHttp(app, "listKeys", key)).outcome).toBe("UNAVAILABLE");
    expect((await callGrpc(app, "verifyKey", key, { key })).outcome).toBe("UNAVAILABLE");
  });

  it("is not ready but alive, and says in its log, once, that it must be restarted", async () => {
    const { app, said } = setting;
    await expect.poll(async () => (await readiness(app)).status).toBe(503);
    expectFailure(await readiness(app), 503, "application/service_unavailable");
    expect((await ask(app.httpUrl, "/v2/liveness", { method: "GET" })).status).toBe(200);
    expect(await readMetric(app, "lease_seconds_left")).toBe(0);
    expect(said(/^the lease cannot be renewed.*lease time was changed to 100 ms: stop every replica/)).toHaveLength(1);
  });

  it("works with the new time once it has been restarted", async () => {
    const { key, workspaceId } = setting;
    for (const call of [callHttp, callGrpc]) {
      expect((await call(restarted, "listKeys", key)).outcome).toBe("OK");
      expect((await call(restarted, "getWorkspace", operatorKey, { workspaceId })).outcome).toBe("OK");
    }
    const left = await readMetric(restarted, "lease_seconds_left");
    expect(left).toBeLessThanOrEqual(0.1);
  });

  it("acknowledges no change to the operator, for others hold longer than it would wait", async () => {
    const { app, key, workspaceId, sql, databaseUrl } = setting;
    await sql`update lease set lease_ms = 3000`;
    const holding = await openTestApp({ databaseUrl });
    try {
      expect((await callHttp(holding, "listKeys", key)).outcome).toBe("OK");
      const request = { workspaceId, reason: "UNPAID_BILLING" };
      const { outcome } = await callHttp(app, "disableWorkspace", operatorKey, request);
      const after = await callHttp(holding, "listKeys", key);
      // Either it was not acknowledged, or it holds everywhere.
      expect([outcome, after.outcome]).not.toEqual(["OK", "OK"]);
    } finally {
      await holding.close();
    }
  });
});
