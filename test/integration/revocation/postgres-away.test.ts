import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { type BehindProxy, openBehindProxy } from "../../support/behind-proxy.js";
import { send } from "../../support/clients/http-requests.js";
import { type CallOutcome, callGrpc, callHttp, medianMs } from "../../support/clients/timed-calls.js";
import { disable } from "../../support/clients/verify-calls.js";
import { operatorKey } from "../../support/harness.js";
import { readMetric } from "../../support/metrics.js";
import { startStopwatch } from "../../support/stopwatch.js";

describe.each(["refuses every connection", "stops answering"])("while PostgreSQL %s", (failure) => {
  let setting: BehindProxy;

  beforeAll(async () => {
    setting = await openBehindProxy();
    await vi.waitFor(async () => expect(await everyCall()).toSatisfy(allAre("OK")), { timeout: 10_000 });
  });
  afterAll(() => setting.close());

  const fail = () => (failure === "stops answering" ? setting.proxy.stall() : setting.proxy.cut());

  /** Calls of keys and of the operator, cached and not cached, through both protocols, all at once. */
  function everyCall(): Promise<CallOutcome[]> {
    const { app, key, workspaceId } = setting;
    return Promise.all(
      [callHttp, callGrpc].flatMap((call) => [
        call(app, "listKeys", key),
        call(app, "verifyKey", key, { key }),
        call(app, "createKey", key),
        call(app, "listWorkspaces", operatorKey),
        call(app, "getWorkspace", operatorKey, { workspaceId }),
        call(app, "createWorkspace", operatorKey, { name: "another" }),
      ]),
    );
  }

  const statusOf = async (path: string) => (await send(setting.app.httpUrl, path, { method: "GET" })).status;

  it("calls are refused as unavailable within about a second, and served about a second after the outage", async () => {
    const { app } = setting;
    fail();
    // Cached keys may be used for the rest of the lease.
    await expect.poll(() => readMetric(app, "lease_seconds_left")).toBe(0);
    const refused: CallOutcome[] = [];
    for (let round = 0; round < 3; round++) refused.push(...(await everyCall()));
    expect(refused).toSatisfy(allAre("UNAVAILABLE"));
    expect(medianMs(refused)).toBeLessThan(1_500);
    expect(refused.filter(({ ms }) => ms > 3_000)).toEqual([]);

    setting.proxy.resume();
    const elapsed = startStopwatch();
    await expect.poll(everyCall, { interval: 20, timeout: 10_000 }).toSatisfy(allAre("OK"));
    expect(elapsed()).toBeLessThan(2_500);
    // Statements that were never answered no longer count as busy.
    await expect.poll(() => readMetric(app, "pool_connections", { state: "busy" })).toBe(0);
  });

  it("the service is alive but not ready; metrics and log show the outage, and afterwards its end", async () => {
    const { app, logged } = setting;
    const linesBefore = {
      away: logged(/^the lease cannot be renewed/).length,
      back: logged(/^the lease is renewed again/).length,
    };
    const failedBefore = await readMetric(app, "lease_renewals_total", { result: "failed" });
    fail();
    await expect.poll(() => statusOf("/readyz"), { timeout: 5_000 }).toBe(503);
    await expect
      .poll(() => readMetric(app, "lease_renewals_total", { result: "failed" }), { timeout: 5_000 })
      .toBeGreaterThan(failedBefore + 2);
    for (let round = 0; round < 2; round++) {
      const statuses = await Promise.all(["/readyz", "/livez", "/v2/liveness"].map(statusOf));
      expect(statuses).toEqual([503, 200, 200]);
      expect(await readMetric(app, "lease_seconds_left")).toBe(0);
    }
    expect(logged(/^the lease cannot be renewed/)).toHaveLength(linesBefore.away + 1);
    expect(logged(/^the lease is renewed again/)).toHaveLength(linesBefore.back);

    setting.proxy.resume();
    await expect.poll(() => statusOf("/readyz"), { timeout: 5_000, interval: 20 }).toBe(200);
    await expect.poll(() => logged(/^the lease is renewed again/).length).toBe(linesBefore.back + 1);
    await expect.poll(() => readMetric(app, "lease_seconds_left")).toBeGreaterThan(0);
    expect(logged(/^the lease cannot be renewed/)).toHaveLength(linesBefore.away + 1);
  });

  it("many concurrent calls are all refused, and all served after the outage", async () => {
    const { app, key } = setting;
    const together = () => Promise.all(Array.from({ length: 50 }, () => callHttp(app, "listKeys", key)));
    fail();
    await expect.poll(() => readMetric(app, "lease_seconds_left")).toBe(0);
    expect(await together()).toSatisfy(allAre("UNAVAILABLE"));
    setting.proxy.resume();
    await expect.poll(() => statusOf("/readyz"), { timeout: 5_000 }).toBe(200);
    expect(await together()).toSatisfy(allAre("OK"));
  });

  it("a workspace that was disabled before the outage stays disabled after it", async () => {
    const { app, key, workspaceId } = setting;
    await disable(app, workspaceId);
    fail();
    await expect.poll(() => statusOf("/readyz"), { timeout: 5_000 }).toBe(503);
    setting.proxy.resume();
    const answer = async () => [await callHttp(app, "listKeys", key), await callGrpc(app, "listKeys", key)];
    for (let round = 0; round < 5; round++) {
      for (const { outcome } of await answer()) {
        expect(outcome).toMatch(/UNAVAILABLE|PERMISSION_DENIED|HTTP 403 .*workspace_disabled/);
      }
    }
    await expect.poll(async () => (await callGrpc(app, "listKeys", key)).outcome).toBe("PERMISSION_DENIED");
  });
});

const allAre = (wanted: string) => (answers: readonly CallOutcome[]) =>
  answers.every(({ outcome }) => outcome === wanted);
