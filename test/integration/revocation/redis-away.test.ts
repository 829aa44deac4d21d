import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";
import { byPort } from "../../support/backend-address.js";
import { createWorkspace, expectFailure, expectSuccess } from "../../support/clients/http-requests.js";
import { disable, enable, listKeys, listKeysGrpc, redisInUse } from "../../support/clients/verify-calls.js";
import { openTestApp, redisAt, type TestApp } from "../../support/harness.js";
import { type BackendProxy, openProxy } from "../../support/proxy.js";
import { createShared, workspaceEntryOf } from "../../support/redis-entries.js";
import { startStopwatch } from "../../support/stopwatch.js";

/** All replicas that must agree. */
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
    expectFailure(await listKeys(replica, key), 403, "authorization/workspace_disabled");
    expect(await listKeysGrpc(replica, key)).toBe("PERMISSION_DENIED");
  }
};

describe("when one replica loses its Redis, all replicas answer rightly", () => {
  let redis: Redis;
  let proxy: BackendProxy;
  let app: TestApp;
  /** Always reaches Redis, past the proxy. */
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
    ({ workspaceId, key, workspaceEntry } = await createShared(app, redis));
    await expectServed();
  });
  afterAll(async () => {
    redis.disconnect();
    await other.close();
    await app.close();
    await proxy.close();
  });

  it("out of reach", async () => {
    proxy.cut();
    await expectServed();
    await disable(app, workspaceId);
    await expectRefused();
    await enable(app, workspaceId);
    await expectServed();
  });

  it("slow to the point of silence, and without making callers wait for it", async () => {
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

  it("cut off during a disable, so that it goes on saying enabled afterwards", async () => {
    proxy.cut();
    await disable(app, workspaceId);
    expect(await redis.get(workspaceEntryOf(workspaceId))).toBe(workspaceEntry);
    proxy.resume();
    await expectRefused();
    await redisInUse(app);
    await expectRefused();
  });

  it("cut off during an enable, so that it goes on saying disabled afterwards", async () => {
    await disable(app, workspaceId);
    proxy.cut();
    await enable(app, workspaceId);
    proxy.resume();
    await expectServed();
    await redisInUse(app);
    await expectServed();
  });

  it("silent during changes, whose late writes then arrive", async () => {
    proxy.stall();
    await disable(app, workspaceId);
    await enable(app, workspaceId);
    await disable(app, workspaceId);
    proxy.resume();
    await expectRefused();
    await enable(app, workspaceId);
    await expectServed();
  });

  it("emptied, again and again", async () => {
    for (const [change, expectEffect] of [
      [disable, expectRefused],
      [enable, expectServed],
    ] as const) {
      await change(app, workspaceId);
      // Only what is this test's: the other tests of the run use the same Redis.
      await redis.del(workspaceEntryOf(workspaceId));
      await expectEffect();
    }
  });
});

describe("a service without Redis keeps the promise", () => {
  const nowhere = () => byPort(inject("redisUrl"), 1);

  it.each([
    ["that is configured without one", () => undefined],
    ["whose Redis has never been there", () => redisAt(nowhere())],
    ["whose cluster has never been there", () => ({ urls: [nowhere()], cluster: true })],
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
