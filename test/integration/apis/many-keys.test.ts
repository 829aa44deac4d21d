import { expect, it } from "vitest";
import { succeed } from "../../support/calls.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { openFileService, openFileSql } from "../../support/file-service.js";

/** So many that changing them one by one would take seconds. */
const many = 30_000;

// Nothing is swept while the test runs: its keys are those of an API that was deleted a moment ago.
const { app, workspaceId, key } = await openFileService();
const sql = openFileSql(app.databaseUrl);

const call = <T>(operation: string, body: object, caller = key) => succeed<T>(app.httpUrl, operation, caller, body);

const timed = async (work: () => Promise<unknown>) => {
  const begun = performance.now();
  await work();
  return performance.now() - begun;
};

it("an API with many keys is deleted as fast as one with none, delays no other workspace, and lists stay quick", async () => {
  const { apiId } = await call<{ apiId: string }>("apis.createApi", { name: "large" });
  const owned = await call<{ keyId: string; key: string }>("keys.createKey", { apiId, externalId: "owner" });
  await sql`
    insert into keys (key_id, workspace_id, hash, start, enabled, permissions, api_id, identity_id, created_at, updated_at)
    select 'key_' || lpad(n::text, 26, '0'), ${workspaceId}, sha256(n::text::bytea), 'lk_test', true, '{}', ${apiId},
      (select identity_id from identities limit 1), now(), now()
    from generate_series(1, ${many}) as n`;
  await sql`analyze keys`;
  const last = await call<{ keyId: string }>("keys.createKey", { name: "the newest", externalId: "owner" });

  const other = await createWorkspace(app.httpUrl);
  const { keyId } = await call<{ keyId: string }>("keys.createKey", {}, other.key);
  const disable = (enabled: boolean) => timed(() => call("keys.updateKey", { keyId, enabled }, other.key));
  const deleteApi = (id: string) => timed(() => call("apis.deleteApi", { apiId: id }));
  const usual = { disable: 0, deleteApi: 0 };
  for (let round = 0; round < 3; round++) {
    const empty = await call<{ apiId: string }>("apis.createApi", { name: "empty" });
    usual.deleteApi = Math.max(usual.deleteApi, await deleteApi(empty.apiId));
    usual.disable = Math.max(usual.disable, await disable(round % 2 === 1));
  }
  const [deletion, change] = await Promise.all([deleteApi(apiId), disable(true)]);
  expect(deletion, `usually ${usual.deleteApi} ms`).toBeLessThan(5 * usual.deleteApi);
  expect(change, `usually ${usual.disable} ms`).toBeLessThan(5 * usual.disable);

  expect(await call("keys.verifyKey", { key: owned.key })).toMatchObject({ code: "NOT_FOUND" });
  // The keys are not deleted one by one yet. Lists pass over them in pages, and lose none of the others.
  for (const request of [{}, { enabled: true }, { externalId: "owner" }]) {
    const found: string[] = [];
    let pages = 0;
    for (let cursor: string | undefined; ; ) {
      const response = await fetch(`${app.httpUrl}/v2/keys.listKeys`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
        body: JSON.stringify({ ...request, ...(cursor && { cursor }) }),
      });
      const { data, pagination } = (await response.json()) as {
        data: { keyId: string; apiId?: string }[];
        pagination: { hasMore: boolean; cursor?: string };
      };
      expect(data.filter((one) => one.apiId === apiId)).toEqual([]);
      found.push(...data.map((one) => one.keyId));
      pages += 1;
      if (!pagination.hasMore) break;
      cursor = pagination.cursor;
    }
    expect(found).toContain(last.keyId);
    expect(new Set(found).size).toBe(found.length);
    expect(pages).toBeLessThanOrEqual(many / 100 + 2);
  }
}, 120_000);
