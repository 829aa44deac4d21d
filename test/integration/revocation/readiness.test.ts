import { describe, expect, inject, it } from "vitest";
import { ask, expectSuccess } from "../../support/clients/http-requests.js";
import { redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, redisAt, type TestApp } from "../../support/harness.js";
import { readMetric } from "../../support/metrics.js";
import { openProxy } from "../../support/proxy.js";

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
