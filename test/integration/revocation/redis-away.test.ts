import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";
import { byPort } from "../../support/backend-address.js";
import { createWorkspace, expectError, expectSuccess } from "../../support/clients/http-requests.js";
import { disable, enable, listKeys, listKeysGrpc, redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, redisAt, type TestApp } from "../../support/harness.js";
import { type BackendProxy, openProxy } from "../../support/proxy.js";
import { createCachedWorkspace, workspaceEntryOf } from "../../support/redis-entries.js";
import { startStopwatch } from "../../support/stopwatch.js";

/** All replicas that must give the same answer. */
let replicas: TestApp[];
let key: string;

const expectServed = async () => {
  for (const replica of replicas) {
    expectSuccess(await listKeys(replica, key));
    expect(await listKeysGrpc(replica, key)).toBe("OK");
  }
};
const expectRefused = async () => {
  for (const replica of replicas) {
    expectError(await listKeys(replica, key), 403, "authorization/workspace_disabled");
    expect(await listKeysGrpc(replica, key)).toBe("PERMISSION_DENIED");
  }
};

describe("immediate revocation holds on all replicas when the Redis of one replica is", () => {
  let redis: Redis;
  let proxy: BackendProxy;
  let app: TestApp;
  /** Always reaches Redis, without the proxy. */
  let other: TestApp;
  let workspaceId: string;
  let workspaceEntry: string;

  beforeAll(async () => {
    redis = new Redis(inject("redisUrl"));
    proxy = await openProxy(inject("redisUrl"));
    app = await openTestApp({ redis: redisAt(proxy.url) });
    other = await openTestApp({ databaseUrl: app.databaseUrl });
  });
  beforeEach(async () => {
    proxy.resume();
    replicas = [app, other];
    for (const replica of replicas) await redisInUse(replica);
    ({ workspaceId, key, workspaceEntry } = await createCachedWorkspace(app, redis));
    await expectServed();
  });
  afterAll(async () => {
    redis.disconnect();
    await other.close();
    await app.close();
    await proxy.close();
  });

  it("unreachable", async () => {
    proxy.cut();
    await expectServed();
    await disable(app, workspaceId);
    await expectRefused();
    await enable(app, workspaceId);
    await expectServed();
  });

  it("not answering, and without long delays of calls", async () => {
    proxy.stall();
    const elapsed = startStopwatch();
    await expectServed();
    await disable(app, workspaceId);
    await expectRefused();
    await enable(app, workspaceId);
    await expectServed();
    // Fourteen calls, each with a few commands of at most 50 ms.
    expect(elapsed()).toBeLessThan(8_000);
  });

  it("disconnected during a disable, so that its entry still says enabled afterwards", async () => {
    proxy.cut();
    await disable(app, workspaceId);
    expect(await redis.get(workspaceEntryOf(workspaceId))).toBe(workspaceEntry);
    proxy.resume();
    await expectRefused();
    await redisInUse(app);
    await expectRefused();
  });

  it("disconnected during an enable, so that its entry still says disabled afterwards", async () => {
    await disable(app, workspaceId);
    proxy.cut();
    await enable(app, workspaceId);
    proxy.resume();
    await expectServed();
    await redisInUse(app);
    await expectServed();
  });

  it("not answering during changes, whose late writes then arrive", async () => {
    proxy.stall();
    await disable(app, workspaceId);
    await enable(app, workspaceId);
    await disable(app, workspaceId);
    proxy.resume();
    await expectRefused();
    await enable(app, workspaceId);
    await expectServed();
  });

  it("emptied after each change", async () => {
    for (const [change, expectEffect] of [
      [disable, expectRefused],
      [enable, expectServed],
    ] as const) {
      await change(app, workspaceId);
      // Only the entry of this test, because the other tests of the run use the same Redis.
      await redis.del(workspaceEntryOf(workspaceId));
      await expectEffect();
    }
  });
});

describe("immediate revocation holds for a service without Redis", () => {
  const nowhere = () => byPort(inject("redisUrl"), 1);

  it.each([
    ["that is configured without one", () => undefined],
    ["whose Redis was never reachable", () => redisAt(nowhere())],
    ["whose Redis cluster was never reachable", () => ({ urls: [nowhere()], cluster: true })],
  ])("%s", async (_what, redis) => {
    const app = await openTestApp({ redis: redis() });
    replicas = [app];
    try {
      const created = await createWorkspace(app.httpUrl);
      key = created.key;
      await expectServed();
      await disable(app, created.workspaceId);
      await expectRefused();
      await enable(app, created.workspaceId);
      await expectServed();
    } finally {
      await app.close();
    }
  });
});
