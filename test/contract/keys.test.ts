import { describe, expect } from "vitest";
import { allProtocols, openContract } from "./cases.js";

const { everyProtocol } = openContract(allProtocols);

const unknownIdentity = "id_01jcz0000000000000000000zz";

describe("listing keys", () => {
  everyProtocol("a new workspace has one key, enabled and with every scope", async (scene) => {
    const { data, pagination } = await scene.page("listKeys", scene.home.key);
    expect(data).toHaveLength(1);
    expect(data[0]).toMatchObject({
      keyId: scene.home.keyId,
      workspaceId: scene.home.workspaceId,
      enabled: true,
      scopes: ["*"],
      permissions: [],
      start: scene.home.key.slice(0, "lk_".length + 4),
    });
    expect(pagination).toEqual({ hasMore: false });
  });

  everyProtocol("the list contains only documented fields, never a secret or a hash", async (scene) => {
    const { key } = await scene.ok("createKey", scene.home.key, { name: "one", externalId: "user_1", meta: { a: 1 } });
    const keys = await scene.ok("listKeys", scene.home.key);
    const documented = [
      "keyId",
      "workspaceId",
      "start",
      "name",
      "enabled",
      "scopes",
      "permissions",
      "identity",
      "meta",
    ];
    documented.push("apiId", "roles", "ratelimits", "credits", "expires", "createdAt", "updatedAt", "lastUsedAt");
    for (const field of keys.flatMap(Object.keys)) expect(documented).toContain(field);
    for (const secret of [scene.home.key, key]) {
      expect(JSON.stringify(keys)).not.toContain(secret.slice(3 + 5));
    }
  });

  everyProtocol("tenant isolation: the list contains only the keys of the caller's workspace", async (scene) => {
    const other = await scene.newWorkspace();
    const { keyId } = await scene.ok("createKey", scene.home.key, { name: "mine" });
    await scene.ok("createKey", other.key, { name: "theirs" });
    const keys = await scene.ok("listKeys", scene.home.key);
    expect(keys.map((key) => key.keyId)).toEqual([scene.home.keyId, keyId]);
    expect(new Set(keys.map((key) => key.workspaceId))).toEqual(new Set([scene.home.workspaceId]));
  });
});

describe("creating keys", () => {
  everyProtocol(
    "a key created without settings is enabled, has no scopes or permissions, and omits unset fields",
    async (scene) => {
      const { keyId, key } = await scene.ok("createKey", scene.home.key);
      expect(key).toMatch(/^lk_[0-9A-Za-z]{39}$/);
      const [, created] = await scene.ok("listKeys", scene.home.key);
      expect(created).toEqual({
        keyId,
        workspaceId: scene.home.workspaceId,
        start: key.slice(0, 7),
        enabled: true,
        scopes: [],
        permissions: [],
        roles: [],
        ratelimits: [],
        createdAt: expect.any(Number),
        updatedAt: created?.createdAt,
      });
    },
  );

  everyProtocol("a key created with every setting is listed with every setting, to the millisecond", async (scene) => {
    const { identityId } = await scene.ok("createIdentity", scene.home.key, {
      externalId: "user_1",
      meta: { plan: "pro" },
    });
    const request = {
      name: "Büro 🗝️",
      scopes: ["keys.read", "identities.*"],
      permissions: ["documents.read-all", "documents:write", "keys.*"],
      meta: { team: "b", nested: { list: [1, null, "x"] } },
      expires: scene.clock.now() + 86_400_123,
      enabled: false,
    };
    const { keyId, key } = await scene.ok("createKey", scene.home.key, { ...request, prefix: "acme_live", identityId });
    expect(key).toMatch(/^acme_live_[0-9A-Za-z]{39}$/);
    const identity = await scene.ok("getIdentity", scene.home.key, { identityId });
    const [, created] = await scene.ok("listKeys", scene.home.key);
    expect(created).toMatchObject({ ...request, keyId, identity, start: key.slice(0, "acme_live_".length + 4) });
  });

  everyProtocol("every key has a unique secret and id", async (scene) => {
    const one = await scene.ok("createKey", scene.home.key, { name: "twin" });
    const two = await scene.ok("createKey", scene.home.key, { name: "twin" });
    expect(one.key).not.toBe(two.key);
    expect(one.keyId).not.toBe(two.keyId);
  });

  everyProtocol("a new key works at once, within its scopes", async (scene) => {
    const { key } = await scene.ok("createKey", scene.home.key, { scopes: ["keys.read"] });
    expect(await scene.ok("listKeys", key)).toHaveLength(2);
    await scene.refused("authorization/insufficient_permissions", "listIdentities", key);
  });

  for (const prefix of ["a", "A_1", "x_", "_", "sixteen_letters_"]) {
    everyProtocol(`a key with the prefix ${prefix} begins with it, and works`, async (scene) => {
      const { key } = await scene.ok("createKey", scene.home.key, { prefix, scopes: ["keys.read"] });
      expect(key.slice(0, prefix.length + 1)).toBe(`${prefix}_`);
      const keys = await scene.ok("listKeys", key);
      expect(keys.at(-1)?.start).toBe(key.slice(0, prefix.length + 5));
    });
  }

  everyProtocol("a key that is created disabled is refused with key_disabled", async (scene) => {
    const { key } = await scene.ok("createKey", scene.home.key, { scopes: ["*"], enabled: false });
    await scene.refused("authorization/key_disabled", "listKeys", key);
  });

  everyProtocol("a key is valid until it expires, and refused from then on", async (scene) => {
    const expires = scene.clock.now() + 60_000;
    const { key } = await scene.ok("createKey", scene.home.key, { scopes: ["*"], expires });
    await scene.ok("listKeys", key);
    await scene.clock.advance(60_000);
    await scene.refused("authentication/key_expired", "listKeys", key);
  });
});

describe("creating keys for an identity", () => {
  everyProtocol("an externalId unknown to the workspace creates an identity", async (scene) => {
    await scene.ok("createKey", scene.home.key, { externalId: "user_new" });
    const identity = await scene.ok("getIdentity", scene.home.key, { externalId: "user_new" });
    expect(identity).toMatchObject({ externalId: "user_new", meta: {} });
    const [, key] = await scene.ok("listKeys", scene.home.key);
    expect(key?.identity).toEqual(identity);
  });

  everyProtocol("an externalId known to the workspace is used, not created again or changed", async (scene) => {
    const request = { externalId: "user_1", meta: { plan: "pro" } };
    const { identityId } = await scene.ok("createIdentity", scene.home.key, request);
    await scene.ok("createKey", scene.home.key, { externalId: "user_1" });
    await scene.ok("createKey", scene.home.key, { externalId: "user_1" });
    const identities = await scene.ok("listIdentities", scene.home.key);
    expect(identities).toEqual([expect.objectContaining({ identityId, ...request })]);
    const keys = await scene.ok("listKeys", scene.home.key);
    expect(keys.map((key) => key.identity?.identityId)).toEqual([undefined, identityId, identityId]);
  });

  everyProtocol("an unknown identityId is refused with identity_not_found and no key is stored", async (scene) => {
    const request = { identityId: unknownIdentity };
    await scene.refused("data/identity_not_found", "createKey", scene.home.key, request);
    expect(await scene.ok("listKeys", scene.home.key)).toHaveLength(1);
    expect(await scene.ok("listIdentities", scene.home.key)).toEqual([]);
  });

  everyProtocol("the keys of a deleted identity stay valid, without an identity", async (scene) => {
    const request = { externalId: "user_1", scopes: ["keys.read"] };
    const { key, keyId } = await scene.ok("createKey", scene.home.key, request);
    await scene.ok("deleteIdentity", scene.home.key, { externalId: "user_1" });
    const keys = await scene.ok("listKeys", key);
    expect(keys.find((entry) => entry.keyId === keyId)).not.toHaveProperty("identity");
  });
});
