import { expect, it } from "vitest";
import { succeed } from "../../support/calls.js";
import { createWorkspace, post } from "../../support/clients/http-requests.js";
import { expectConstantCost } from "../../support/deletion-cost.js";
import { openFileService, openFileSql } from "../../support/file-service.js";

/** So many that changing them one by one would take seconds. */
const many = 60_000;

const { app, workspaceId, key } = await openFileService();
const sql = openFileSql(app.databaseUrl);

/** Creates an identity that owns many keys. One of them is made by the service, so that it can be verified. */
const createOwnerOfMany = async (externalId: string, from: number) => {
  const { identityId } = await succeed<{ identityId: string }>(app.httpUrl, "identities.createIdentity", key, {
    externalId,
  });
  const owned = await succeed<{ keyId: string; key: string }>(app.httpUrl, "keys.createKey", key, { identityId });
  await sql`
    insert into keys (key_id, workspace_id, hash, start, enabled, permissions, identity_id, created_at, updated_at)
    select 'key_' || lpad(n::text, 26, '0'), ${workspaceId}, sha256(n::text::bytea), 'lk_test', true, '{}', ${identityId},
      now(), now() from generate_series(${from}::int, ${from + many - 1}::int) as n`;
  await sql`analyze keys`;
  return { externalId, identityId, owned };
};

const deletion = (externalId: string) => () => succeed(app.httpUrl, "identities.deleteIdentity", key, { externalId });

it("an identity with many keys is deleted as fast as one with none, writes none of them, and delays no other workspace", async () => {
  const other = await createWorkspace(app.httpUrl);
  const { keyId } = await succeed<{ keyId: string }>(app.httpUrl, "keys.createKey", other.key, {});
  const owners: Awaited<ReturnType<typeof createOwnerOfMany>>[] = [];
  await expectConstantCost({
    sql,
    workspaceId,
    withMany: async (round) => {
      const owner = await createOwnerOfMany(`owner of many ${round}`, round * many);
      owners.push(owner);
      return deletion(owner.externalId);
    },
    withNone: async () => {
      await succeed(app.httpUrl, "identities.createIdentity", key, { externalId: "owner of none" });
      return deletion("owner of none");
    },
    change: (round) => succeed(app.httpUrl, "keys.updateKey", other.key, { keyId, enabled: round % 2 === 1 }),
  });

  const { externalId, identityId, owned } = owners[0] as (typeof owners)[number];
  // All of its keys are without an identity.
  const response = await post(app.httpUrl, "/v2/identities.getIdentity", key, { identityId });
  expect(response.status).toBe(404);
  const verified = await succeed<object>(app.httpUrl, "keys.verifyKey", key, { key: owned.key });
  expect(verified).toMatchObject({ code: "VALID" });
  const stored = await succeed<object>(app.httpUrl, "keys.getKey", key, { keyId: owned.keyId });
  for (const result of [verified, stored]) expect(result).not.toHaveProperty("identity");
  const listed = await succeed<object[]>(app.httpUrl, "keys.listKeys", key, {});
  expect(listed.filter((each) => "identity" in each)).toEqual([]);
  // The externalId is free again, and a new identity with it has none of these keys.
  await succeed(app.httpUrl, "identities.createIdentity", key, { externalId });
  expect(await succeed(app.httpUrl, "keys.listKeys", key, { externalId })).toEqual([]);
}, 120_000);
