import { expect, it } from "vitest";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { createDatabase, openTestApp } from "../../support/harness.js";
import { openProxy } from "../../support/proxy.js";

// An uncaught exception would end the service. Vitest fails the run on one.
it("connections to PostgreSQL that break during changes crash nothing and lose no acknowledged change", async () => {
  const database = await createDatabase();
  const proxy = await openProxy(database.url);
  const app = await openTestApp({ databaseUrl: proxy.url });
  const { key } = await createWorkspace(app.httpUrl);
  const call = async (path: string, body: object) => {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    return fetch(app.httpUrl + path, { method: "POST", headers, body: JSON.stringify(body) });
  };
  try {
    const acknowledged: string[] = [];
    for (let round = 0; round < 15; round++) {
      const creations = Array.from({ length: 20 }, async (_, index) => {
        const response = await call("/v2/keys.createKey", { externalId: `user_${round}_${index % 3}` });
        const body = (await response.json()) as { data: { keyId: string } };
        if (response.status === 200) acknowledged.push(body.data.keyId);
        return response.status;
      });
      // The first response shows that calls are in flight.
      await Promise.race(creations);
      proxy.cut();
      const statuses = new Set(await Promise.all(creations));
      expect([...statuses].filter((status) => ![200, 503, 504].includes(status))).toEqual([]);
      proxy.resume();
      await expect.poll(async () => (await call("/v1/keys.listKeys", {})).status, { timeout: 10_000 }).toBe(200);
    }
    expect(acknowledged.length).toBeGreaterThan(0);
    for (const keyId of acknowledged) {
      expect((await call("/v2/keys.getKey", { keyId })).status).toBe(200);
      const events = await (await call("/v2/workspaces.listAuditEvents", { resourceId: keyId })).json();
      expect(events).toMatchObject({ data: [{ type: "key.create", resourceId: keyId }] });
    }
  } finally {
    await app.close();
    await proxy.close();
    await database.drop();
  }
});
