import { describe, expect } from "vitest";
import { openContract } from "./cases.js";
import { createFullKey, readSettings } from "./key-settings.js";

const { everyProtocol, someProtocols } = openContract();
const messageProtocols = ["grpc", "connect", "grpc-web"] as const;
const invalid = "application/invalid_input";

describe("the identity of a key", () => {
  everyProtocol("can be changed by identityId, and nothing else changes", async (scene) => {
    const { keyId } = await createFullKey(scene);
    const before = await readSettings(scene, keyId);
    const { identityId } = await scene.ok("createIdentity", scene.home.key, { externalId: "user_2", meta: { a: 1 } });
    const after = await scene.ok("updateKey", scene.home.key, { keyId, identityId });
    const identity = await scene.ok("getIdentity", scene.home.key, { identityId });
    expect(after).toEqual({ ...before, identity, updatedAt: after.updatedAt });
  });

  everyProtocol("can be changed by an existing externalId, whose identity is not modified", async (scene) => {
    const { keyId } = await createFullKey(scene);
    await scene.ok("createIdentity", scene.home.key, { externalId: "user_2", meta: { a: 1 } });
    const { identity } = await scene.ok("updateKey", scene.home.key, { keyId, externalId: "user_2" });
    expect(identity).toEqual(await scene.ok("getIdentity", scene.home.key, { externalId: "user_2" }));
    expect(identity?.meta).toEqual({ a: 1 });
    expect(await scene.ok("listIdentities", scene.home.key)).toHaveLength(2);
  });

  everyProtocol("can be changed by an unknown externalId, whose identity is created", async (scene) => {
    const { keyId } = await createFullKey(scene);
    const { identity } = await scene.ok("updateKey", scene.home.key, { keyId, externalId: "user_new" });
    expect(identity).toMatchObject({ externalId: "user_new", meta: {} });
    expect(identity).toEqual(await scene.ok("getIdentity", scene.home.key, { externalId: "user_new" }));
    expect(await scene.ok("listIdentities", scene.home.key)).toHaveLength(2);
  });

  everyProtocol("can be set on a key that had none and removed again; the identity itself stays", async (scene) => {
    const { keyId } = await scene.ok("createKey", scene.home.key);
    const given = await scene.ok("updateKey", scene.home.key, { keyId, externalId: "user_1" });
    expect(given.identity?.externalId).toBe("user_1");
    const taken = await scene.ok("updateKey", scene.home.key, { keyId, identityId: null });
    expect(taken).not.toHaveProperty("identity");
    await scene.ok("getIdentity", scene.home.key, { externalId: "user_1" });
  });

  everyProtocol(
    "is the one that is set if the other field that names it is cleared in the same update",
    async (scene) => {
      const { keyId } = await createFullKey(scene);
      const { identityId } = await scene.ok("createIdentity", scene.home.key, { externalId: "user_2" });
      const byId = await scene.ok("updateKey", scene.home.key, { keyId, identityId, externalId: null });
      expect(byId.identity?.externalId).toBe("user_2");
      const byName = await scene.ok("updateKey", scene.home.key, { keyId, identityId: null, externalId: "user_3" });
      expect(byName.identity?.externalId).toBe("user_3");
    },
  );

  everyProtocol("that does not exist is refused, and nothing of the update is applied", async (scene) => {
    const { keyId } = await createFullKey(scene);
    const before = await readSettings(scene, keyId);
    const request = { keyId, identityId: "id_01jcz0000000000000000000zz", name: "second" };
    await scene.refused("data/identity_not_found", "updateKey", scene.home.key, request);
    expect(await readSettings(scene, keyId)).toEqual(before);
  });

  everyProtocol("is not created for a key that does not exist", async (scene) => {
    const request = { keyId: "key_01jcz0000000000000000000zz", externalId: "user_1" };
    await scene.refused("data/key_not_found", "updateKey", scene.home.key, request);
    expect(await scene.ok("listIdentities", scene.home.key)).toEqual([]);
  });

  someProtocols(["http"], "cannot be set by both fields at once", async (scene) => {
    const { keyId } = await createFullKey(scene);
    const { identityId } = await scene.ok("createIdentity", scene.home.key, { externalId: "user_2" });
    const request = { keyId, identityId, externalId: "user_3" };
    const { fields } = await scene.refused(invalid, "updateKey", scene.home.key, request);
    expect(fields?.map(({ location }) => location)).toEqual(["externalId"]);
    expect((await readSettings(scene, keyId)).identity?.externalId).toBe("user_1");
  });

  someProtocols(messageProtocols, "is not changed by a field that the update mask does not name", async (scene) => {
    const { keyId } = await createFullKey(scene);
    const request = { keyId, externalId: "user_new", updateMask: { paths: ["identity_id"] } };
    const outcome = await scene.call("updateKey", scene.home.key, request);
    if (!outcome.ok) expect(outcome.code).toBe(invalid);
    expect((await readSettings(scene, keyId)).identity?.externalId).not.toBe("user_new");
    const identities = await scene.ok("listIdentities", scene.home.key);
    expect(identities.map(({ externalId }) => externalId)).toEqual(["user_1"]);
  });
});
