import { describe, expect, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { sendRequest } from "../support/clients/http.js";
import type { CallRequest } from "../support/clients/protocol-client.js";
import type { OperationName } from "../support/operations.js";
import { openContract } from "./cases.js";
import { readAllSettings } from "./key-settings.js";
import { openScene, type Scene } from "./scene.js";

const contract = openContract();
const { everyProtocol } = contract;
const lacking = "authorization/insufficient_permissions";
const noApi = "api_00000000000000000000000000";

const newApi = ({ ok, home }: Scene, name = "payments") => ok("createApi", home.key, { name });

describe("an API", () => {
  everyProtocol("is returned as it was created; names need not be unique", async (scene) => {
    const { ok, page, home } = scene;
    const { apiId } = await newApi(scene, "payments 🗝️");
    expect(apiId).toMatch(/^api_[0-9a-z]{26}$/);
    const api = await ok("getApi", home.key, { apiId });
    expect(api).toEqual({ id: apiId, name: "payments 🗝️", createdAt: expect.any(Number) });
    const { apiId: second } = await newApi(scene, "payments 🗝️");
    const all = await page("listApis", home.key);
    expect(all).toEqual({
      data: [api, { ...api, id: second, createdAt: expect.any(Number) }],
      pagination: { hasMore: false },
    });
  });

  everyProtocol("groups keys: they name it, and are listed by it", async (scene) => {
    const { ok, home } = scene;
    const [{ apiId }, { apiId: other }] = [await newApi(scene), await newApi(scene, "search")];
    const mine = [];
    for (const name of ["a", "b", "c"]) mine.push(await ok("createKey", home.key, { apiId, name }));
    await ok("createKey", home.key, { apiId: other });
    await ok("createKey", home.key, { name: "without an API" });
    expect(await ok("getKey", home.key, { keyId: mine[0]?.keyId })).toMatchObject({ apiId });
    expect((await ok("listKeys", home.key, { apiId })).map(({ keyId }) => keyId)).toEqual(
      mine.map(({ keyId }) => keyId),
    );
    const first = await scene.page("listKeys", home.key, { apiId, limit: 2 });
    expect(first.data.map(({ name }) => name)).toEqual(["a", "b"]);
    const second = await scene.page("listKeys", home.key, { apiId, limit: 2, cursor: first.pagination?.cursor });
    expect(second.data.map(({ name }) => name)).toEqual(["c"]);
    const successor = await ok("rerollKey", home.key, { keyId: mine[0]?.keyId });
    expect(await ok("getKey", home.key, { keyId: successor.keyId })).toMatchObject({ apiId });
  });

  test("has its keys under the path /v2/apis.listKeys, too", async () => {
    const scene = await openScene(contract.protocols.http, contract.clock);
    const { apiId } = await newApi(scene);
    const { keyId } = await scene.ok("createKey", scene.home.key, { apiId });
    const request = { apiId, revalidateKeysCache: false, decrypt: false };
    const response = await sendRequest(contract.app.httpUrl, ["POST", "/v2/apis.listKeys"], scene.home.key, request);
    expect(await response.json()).toMatchObject({ data: [{ keyId, apiId }], pagination: { hasMore: false } });
  });

  everyProtocol("must exist in the workspace: of another workspace or deleted, it does not", async (scene) => {
    const { ok, refused, home } = scene;
    const other = await scene.newWorkspace();
    const { apiId: foreign } = await ok("createApi", other.key, { name: "theirs" });
    const { apiId: deleted } = await newApi(scene);
    await ok("deleteApi", home.key, { apiId: deleted });
    const before = await readAllSettings(scene);
    for (const apiId of [noApi, foreign, deleted]) {
      await refused("data/api_not_found", "createKey", home.key, { apiId, externalId: "user_1" });
      await refused("data/api_not_found", "getApi", home.key, { apiId });
      await refused("data/api_not_found", "listKeys", home.key, { apiId });
      await refused("data/api_not_found", "deleteApi", home.key, { apiId });
    }
    expect(await readAllSettings(scene)).toEqual(before);
    expect(await ok("listIdentities", home.key)).toEqual([]);
    expect(await ok("getApi", other.key, { apiId: foreign })).toMatchObject({ name: "theirs" });
  });
});

describe("deleting an API", () => {
  everyProtocol("deletes its keys: every operation reports them as nonexistent", async (scene) => {
    const { ok, refused, home } = scene;
    const { apiId } = await newApi(scene);
    const { apiId: other } = await newApi(scene, "another");
    const victim = await ok("createKey", home.key, { apiId, scopes: ["keys.read"], externalId: "user_1" });
    const neighbour = await ok("createKey", home.key, { apiId: other });
    for (const { key } of [victim, neighbour]) {
      expect(await ok("verifyKey", home.key, { key })).toMatchObject({ code: "VALID" });
    }
    await ok("listKeys", victim.key);
    await ok("deleteApi", home.key, { apiId });

    await refused("authentication/key_not_found", "listKeys", victim.key);
    expect(await ok("verifyKey", home.key, { key: victim.key })).toMatchObject({ valid: false, code: "NOT_FOUND" });
    const { keyId } = victim;
    const calls: [OperationName, CallRequest][] = [
      ["getKey", { keyId }],
      ["whoami", { key: victim.key }],
      ["updateKey", { keyId, name: "x" }],
      ["updateKey", { keyId }],
      ["deleteKey", { keyId }],
      ["rerollKey", { keyId }],
      ["addPermissions", { keyId, permissions: ["a"] }],
      ["removePermissions", { keyId, permissions: ["a"] }],
      ["setPermissions", { keyId, permissions: ["a"] }],
      ["setRoles", { keyId, roles: [] }],
    ];
    for (const [operation, request] of calls) await refused("data/key_not_found", operation, home.key, request);
    for (const request of [{}, { enabled: true }, { externalId: "user_1" }]) {
      const listed = await ok("listKeys", home.key, request);
      expect(listed.map((key) => key.keyId)).not.toContain(keyId);
    }
    await refused("data/api_not_found", "listKeys", home.key, { apiId });
    expect(await ok("listApis", home.key)).toMatchObject([{ id: other }]);
    expect(await ok("verifyKey", home.key, { key: neighbour.key })).toMatchObject({ code: "VALID" });
  });

  everyProtocol("is recorded; a second deletion fails with api_not_found", async (scene) => {
    const { ok, refused, home } = scene;
    const { apiId } = await newApi(scene);
    await ok("deleteApi", home.key, { apiId });
    await refused("data/api_not_found", "deleteApi", home.key, { apiId });
    const events = await ok("listAuditEvents", home.key, { resourceId: apiId });
    expect(events).toMatchObject([
      { type: "api.delete", actor: home.keyId, before: { name: "payments" } },
      { type: "api.create", actor: home.keyId, after: { name: "payments" } },
    ]);
    expect(events).toHaveLength(2);
  });

  everyProtocol("is refused for the API of the caller's own key", async (scene) => {
    const { ok, refused, home } = scene;
    const { apiId } = await newApi(scene);
    for (const scopes of [["apis.delete"], ["*"]]) {
      const caller = await ok("createKey", home.key, { apiId, scopes });
      const { detail } = await refused(lacking, "deleteApi", caller.key, { apiId });
      expect(detail).toContain("cannot delete the API that it belongs to");
    }
    expect(await ok("listApis", home.key)).toHaveLength(1);
  });

  everyProtocol(
    "privilege escalation: needs every scope of its keys, and the error names none of them",
    async (scene) => {
      const { ok, refused, home } = scene;
      const { apiId } = await newApi(scene);
      const admin = await ok("createKey", home.key, { apiId, scopes: ["keys.update", "identities.read"] });
      await ok("createKey", home.key, { apiId });
      for (const scopes of [["apis.delete"], ["apis.*", "keys.update"], ["apis.delete", "keys.*", "identitiesx.*"]]) {
        const caller = await ok("createKey", home.key, { scopes });
        const { detail } = await refused(lacking, "deleteApi", caller.key, { apiId });
        expect(detail).not.toMatch(/keys\.update|identities\.read/);
      }
      expect(await ok("verifyKey", home.key, { key: admin.key })).toMatchObject({ code: "VALID" });
      const covering = await ok("createKey", home.key, { scopes: ["apis.delete", "keys.*", "identities.read"] });
      await ok("deleteApi", covering.key, { apiId });
      expect(await ok("verifyKey", home.key, { key: admin.key })).toMatchObject({ code: "NOT_FOUND" });
    },
  );

  everyProtocol("needs no further scope if its keys have none, or those with scopes are deleted", async (scene) => {
    const { ok, home } = scene;
    const { apiId } = await newApi(scene);
    const caller = await ok("createKey", home.key, { scopes: ["apis.delete"] });
    const { keyId } = await ok("createKey", home.key, { apiId, scopes: ["*"] });
    await ok("createKey", home.key, { apiId, permissions: ["*"] });
    await ok("deleteKey", home.key, { keyId });
    await ok("deleteApi", caller.key, { apiId });
  });

  test("with more than 100 keys with scopes needs `*`, so that the check has bounded cost", async () => {
    const { ok, refused, home } = await openScene(contract.protocols.grpc, contract.clock);
    const { apiId } = await ok("createApi", home.key, { name: "many" });
    const sql = openSql(contract.app.databaseUrl, { max: 1 });
    const insert = (from: number, to: number) => sql`
      insert into keys (key_id, workspace_id, hash, start, enabled, scopes, permissions, api_id, created_at, updated_at)
      select 'key_' || n, ${home.workspaceId}, sha256((${apiId} || n)::bytea), 'lk_test', true, '{keys.read}', '{}',
        ${apiId}, now(), now()
      from generate_series(${from}::int, ${to}::int) as n`;
    const caller = await ok("createKey", home.key, { scopes: ["apis.delete", "keys.read"] });
    await insert(1, 101);
    await refused(lacking, "deleteApi", caller.key, { apiId });
    await sql`delete from keys where key_id = 'key_101'`.finally(() => sql.end());
    await ok("deleteApi", caller.key, { apiId });
    const { apiId: second } = await ok("createApi", home.key, { name: "for the first key" });
    await ok("deleteApi", home.key, { apiId: second });
  });
});
