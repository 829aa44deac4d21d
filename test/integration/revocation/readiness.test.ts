import { describe, expect, inject, it } from "vitest";
import { expectSuccess, send } from "../../support/clients/http-requests.js";
import { redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, redisAt, type TestApp } from "../../support/harness.js";
import { readMetric } from "../../support/metrics.js";
import { openProxy } from "../../support/proxy.js";

const readiness = (app: TestApp) => send(app.httpUrl, "/readyz", { method: "GET" });

describe("readiness", () => {
  it("is reported without a credential, with the state of the lease and of Redis", async () => {
    const proxy = await openProxy(inject("redisUrl"));
    const app = await openTestApp({ redis: redisAt(proxy.url), metricsPort: 0 });
    try {
      await redisInUse(app);
      expect(expectSuccess(await readiness(app))).toEqual({ status: "ready", lease: "valid", redis: "in use" });
      expect(await readMetric(app, "redis_in_use")).toBe(1);
      // Without Redis the service is slower, but ready.
      proxy.cut();
      await expect.poll(() => readMetric(app, "redis_in_use"), { timeout: 5_000 }).toBe(0);
      expect(expectSuccess(await readiness(app))).toEqual({ status: "ready", lease: "valid", redis: "out of use" });
      proxy.resume();
      await redisInUse(app);
    } finally {
      await app.close();
      await proxy.close();
    }
  });

  it("reports that no Redis is configured", async () => {
    const app = await openTestApp({ redis: undefined });
    expect(expectSuccess(await readiness(app))).toEqual({ status: "ready", lease: "valid", redis: "none" });
    await app.close();
  });
});

it.each(["/livez", "/v2/liveness"])("liveness is reported at %s, without a credential", async (path) => {
  const app = await openTestApp({ redis: undefined });
  expect(expectSuccess(await send(app.httpUrl, path, { method: "GET" }))).toEqual({ status: "alive" });
  await app.close();
});
