import { expect, it } from "vitest";
import { succeed } from "../../support/calls.js";
import { createWorkspace, post } from "../../support/clients/http-requests.js";
import { openFileService, openFileSql } from "../../support/file-service.js";

/** So many that changing them one by one would take seconds. */
const many = 60_000;

const { app, workspaceId, key } = await openFileService();
const sql = openFileSql(app.databaseUrl);

const timed = async (work: () => Promise<unknown>) => {
  const begun = performance.now();
  await work();
  return performance.now() - begun;
};

it("an identity with many keys is deleted as fast as one with none, and delays no other workspace", async () => {
  const { identityId } = await succeed<{ identityId: string }>(app.httpUrl, "identities.createIdentity", key, {
    externalId: "owner of many",
  });
  const owned = await succeed<{ keyId: string; key: string }>(app.httpUrl, "keys.createKey", key, { identityId });
  await sql`
    insert into keys (key_id, workspace_id, hash, start, enabled, permissions, identity_id, created_at, updated_at)
    select 'key_' || lpad(n::text, 26, '0'), ${workspaceId}, sha256(n::text::bytea), 'lk_test', true, '{}', ${identityId},
      now(), now() from generate_series(1, ${many}) as n`;
  await sql`analyze keys`;

  const other = await createWorkspace(app.httpUrl);
  const { keyId } = await succeed<{ keyId: string }>(app.httpUrl, "keys.createKey", other.key, {});
  const disable = (enabled: boolean) =>
    timed(() => succeed(app.httpUrl, "keys.updateKey", other.key, { keyId, enabled }));
  const deleteIdentity = (externalId: string) =>
    timed(() => succeed(app.httpUrl, "identities.deleteIdentity", key, { externalId }));

  const usual = { disable: 0, deleteIdentity: 0 };
  for (let round = 0; round < 3; round++) {
    await succeed(app.httpUrl, "identities.createIdentity", key, { externalId: "owner of none" });
    usual.deleteIdentity = Math.max(usual.deleteIdentity, await deleteIdentity("owner of none"));
    usual.disable = Math.max(usual.disable, await disable(round % 2 === 1));
  }
  const [deletion, change] = await Promise.all([deleteIdentity("owner of many"), disable(true)]);
  expect(deletion, `usually ${usual.deleteIdentity} ms`).toBeLessThan(5 * usual.deleteIdentity);
  expect(change, `usually ${usual.disable} ms`).toBeLessThan(5 * usual.disable);

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
  await succeed(app.httpUrl, "identities.createIdentity", key, { externalId: "owner of many" });
  expect(await succeed(app.httpUrl, "keys.listKeys", key, { externalId: "owner of many" })).toEqual([]);
});
