import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import { createWorkspace, expectFailure, expectSuccess } from "../gateway/http.js";
import { openTestApp, redisAt, type TestApp } from "../harness.js";
import { type BackendProxy, openProxy } from "../proxy.js";
import { disable, enable, listKeys, listKeysGrpc, redisInUse } from "./calls.js";

let app: TestApp;
let proxy: BackendProxy;
let workspaceId: string;
let key: string;

const expectServed = async () => {
  expectSuccess(await listKeys(app, key));
  expect(await listKeysGrpc(app, key)).toBe("OK");
};
const expectRefused = async () => {
  expectFailure(await listKeys(app, key), 403, "authorization/workspace_disabled");
  expect(await listKeysGrpc(app, key)).toBe("PERMISSION_DENIED");
};

describe("when Redis fails, Postgres answers", () => {
  let redis: Redis;

  beforeEach(async () => {
    redis = new Redis(inject("redisUrl"));
    proxy = await openProxy(inject("redisUrl"));
    app = await openTestApp({ redis: redisAt(proxy.url) });
    await redisInUse(app);
    ({ workspaceId, key } = await createWorkspace(app.httpUrl));
    await expect
      .poll(
        async () => {
          expectSuccess(await listKeys(app, key));
          return redis.exists(`latchkey:ws:${workspaceId}`);
        },
        { timeout: 10_000 },
      )
      .toBe(1);
  });
  afterEach(async () => {
    redis.disconnect();
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
    const startedAt = performance.now();
    await expectServed();
    await disable(app, workspaceId);
    await expectRefused();
    await enable(app, workspaceId);
    await expectServed();
    // Eight calls, each with a few commands of at most 50 ms; many times that on a busy machine.
    expect(performance.now() - startedAt).toBeLessThan(8_000);
  });

  it("cut off during a disable, so that it goes on saying enabled afterwards", async () => {
    const old = await redis.get(`latchkey:ws:${workspaceId}`);
    expect(old).toMatch(/\.enabled@/);
    proxy.cut();
    await disable(app, workspaceId);
    expect(await redis.get(`latchkey:ws:${workspaceId}`)).toBe(old);
    proxy.resume();
    await expectRefused();
  });

  it("cut off during an enable, so that it goes on saying disabled afterwards", async () => {
    await disable(app, workspaceId);
    proxy.cut();
    await enable(app, workspaceId);
    proxy.resume();
    await expectServed();
  });

  it("silent during a disable, whose late write then arrives", async () => {
    proxy.stall();
    await disable(app, workspaceId);
    await enable(app, workspaceId);
    await disable(app, workspaceId);
    proxy.resume();
    await expectRefused();
    await enable(app, workspaceId);
    await expectServed();
  });
});

it("without any Redis everything works", async () => {
  app = await openTestApp({ redis: undefined });
  try {
    ({ workspaceId, key } = await createWorkspace(app.httpUrl));
    await expectServed();
    await disable(app, workspaceId);
    await expectRefused();
    await enable(app, workspaceId);
    await expectServed();
  } finally {
    await app.close();
  }
});

it("a service starts and serves although its Redis has never been there", async () => {
  const nowhere = new URL(inject("redisUrl"));
  nowhere.port = "1";
  app = await openTestApp({ redis: redisAt(nowhere.href) });
  try {
    ({ workspaceId, key } = await createWorkspace(app.httpUrl));
    await expectServed();
    await disable(app, workspaceId);
    await expectRefused();
  } finally {
    await app.close();
  }
});
