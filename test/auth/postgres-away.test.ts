import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createWorkspace, expectFailure, expectSuccess } from "../gateway/http.js";
import { createDatabase, openTestApp, type TestApp } from "../harness.js";
import { type BackendProxy, openProxy } from "../proxy.js";
import { disable, listKeys, listKeysGrpc } from "./calls.js";

let app: TestApp;
let proxy: BackendProxy;
let workspaceId: string;
let key: string;

describe("when Postgres is away, nobody is let through", () => {
  let database: Awaited<ReturnType<typeof createDatabase>>;

  beforeEach(async () => {
    database = await createDatabase();
    proxy = await openProxy(database.url);
    app = await openTestApp({ databaseUrl: proxy.url });
    ({ workspaceId, key } = await createWorkspace(app.httpUrl));
    expectSuccess(await listKeys(app, key));
  });
  afterEach(async () => {
    await app.close();
    await proxy.close();
    await database.drop();
  });

  it("calls are answered with 503 and Retry-After, over gRPC with UNAVAILABLE, and are served again once it is back", async () => {
    proxy.cut();
    for (let attempt = 0; attempt < 3; attempt++) {
      const answer = await listKeys(app, key);
      expectFailure(answer, 503, "application/service_unavailable");
      expect(Number(answer.headers["retry-after"])).toBeGreaterThan(0);
      expect(answer.text).not.toMatch(/ECONN|127\.0\.0\.1:\d+ /);
      expect(await listKeysGrpc(app, key)).toBe("UNAVAILABLE");
    }
    proxy.resume();
    await expect.poll(async () => (await listKeys(app, key)).status, { timeout: 5_000 }).toBe(200);
    await expect.poll(() => listKeysGrpc(app, key), { timeout: 5_000 }).toBe("OK");
  });

  it("many calls at once are all refused, and all served once it is back", async () => {
    proxy.cut();
    const refused = await Promise.all(Array.from({ length: 50 }, () => listKeys(app, key)));
    for (const answer of refused) expectFailure(answer, 503, "application/service_unavailable");
    proxy.resume();
    await expect.poll(async () => (await listKeys(app, key)).status, { timeout: 5_000 }).toBe(200);
    const served = await Promise.all(Array.from({ length: 50 }, () => listKeys(app, key)));
    for (const answer of served) expectSuccess(answer);
  });

  it("a workspace that was disabled before stays disabled when it is back", async () => {
    await disable(app, workspaceId);
    proxy.cut();
    // What is held may be used for the rest of the lease.
    await expect.poll(async () => (await listKeys(app, key)).status, { timeout: 5_000 }).toBe(503);
    proxy.resume();
    await expect.poll(async () => (await listKeys(app, key)).status, { timeout: 5_000 }).not.toBe(503);
    expectFailure(await listKeys(app, key), 403, "authorization/workspace_disabled");
    expect(await listKeysGrpc(app, key)).toBe("PERMISSION_DENIED");
  });
});
