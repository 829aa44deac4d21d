import { expect, it } from "vitest";
import { succeed } from "../../support/calls.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { expectConstantCost } from "../../support/deletion-cost.js";
import { openFileService, openFileSql } from "../../support/file-service.js";

/** So many that changing them one by one would take seconds. */
const many = 30_000;

// Nothing is swept while the test runs: its keys are those of an API that was deleted a moment ago.
const { app, workspaceId, key } = await openFileService();
const sql = openFileSql(app.databaseUrl);

const call = <T>(operation: string, body: object, caller = key) => succeed<T>(app.httpUrl, operation, caller, body);

/** Creates an API with many keys. One of them is made by the service, so that it can be verified. */
const createLargeApi = async (from: number) => {
  const { apiId } = await call<{ apiId: string }>("apis.createApi", { name: "large" });
  const owned = await call<{ keyId: string; key: string }>("keys.createKey", { apiId, externalId: "owner" });
  await sql`
    insert into keys (key_id, workspace_id, hash, start, enabled, permissions, api_id, identity_id, created_at, updated_at)
    select 'key_' || lpad(n::text, 26, '0'), ${workspaceId}, sha256(n::text::bytea), 'lk_test', true, '{}', ${apiId},
      (select identity_id from identities limit 1), now(), now()
    from generate_series(${from}::int, ${from + many - 1}::int) as n`;
  await sql`analyze keys`;
  return { apiId, owned };
};

const deletion = (apiId: string) => () => call("apis.deleteApi", { apiId });

it("an API with many keys is deleted as fast as one with none, writes none of them, delays no other workspace, and lists stay quick", async () => {
  const other = await createWorkspace(app.httpUrl);
  const { keyId } = await call<{ keyId: string }>("keys.createKey", {}, other.key);
  const apis: Awaited<ReturnType<typeof createLargeApi>>[] = [];
  await expectConstantCost({
    sql,
    workspaceId,
    withMany: async (round) => {
      const api = await createLargeApi(round * many);
      apis.push(api);
      return deletion(api.apiId);
    },
    withNone: async () => deletion((await call<{ apiId: string }>("apis.createApi", { name: "empty" })).apiId),
    change: (round) => call("keys.updateKey", { keyId, enabled: round % 2 === 1 }, other.key),
  });

  // The keys of one deleted API are enough for what follows.
  const [{ apiId, owned }, ...removed] = apis as [(typeof apis)[number], ...typeof apis];
  await sql`delete from keys where api_id = any(${removed.map((api) => api.apiId)})`;
  const last = await call<{ keyId: string }>("keys.createKey", { name: "the newest", externalId: "owner" });
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
