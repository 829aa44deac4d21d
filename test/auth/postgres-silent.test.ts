import { describe, it } from "vitest";
import { createWorkspace, expectSuccess } from "../gateway/http.js";
import { createDatabase, openTestApp } from "../harness.js";
import { openProxy } from "../proxy.js";
import { listKeys, listKeysGrpc } from "./calls.js";

/** A service with a proxy before its Postgres, for one test. */
async function openBehindProxy() {
  const database = await createDatabase();
  const proxy = await openProxy(database.url);
  const app = await openTestApp({ databaseUrl: proxy.url });
  const { key } = await createWorkspace(app.httpUrl);
  return {
    app,
    proxy,
    key,
    async close() {
      proxy.cut();
      await app.close();
      await proxy.close();
      await database.drop();
    },
  };
}

describe("when Postgres falls silent", { timeout: 60_000 }, () => {
  it("calls end in refusal within the deadline of 10 s, and are served again when it speaks", async ({ expect }) => {
    const { app, proxy, key, close } = await openBehindProxy();
    try {
      expectSuccess(await listKeys(app, key));
      proxy.stall();
      const startedAt = performance.now();
      const [http, grpc] = await Promise.all([listKeys(app, key), listKeysGrpc(app, key)]);
      expect(performance.now() - startedAt).toBeLessThan(15_000);
      expect([503, 504]).toContain(http.status);
      expect(["UNAVAILABLE", "DEADLINE_EXCEEDED"]).toContain(grpc);
      proxy.resume();
      await expect.poll(async () => (await listKeys(app, key)).status, { timeout: 5_000 }).toBe(200);
    } finally {
      await close();
    }
  });
});
