import { describe, expect } from "vitest";
import { openContract } from "./cases.js";
import { createFullKey } from "./key-settings.js";

const { everyProtocol } = openContract();
const code = "data/key_not_found";

describe("a deleted key", () => {
  for (const operation of ["getKey", "updateKey", "deleteKey", "rerollKey"] as const) {
    everyProtocol(`is not found by ${operation}`, async (scene) => {
      const { keyId } = await createFullKey(scene);
      expect(await scene.ok("deleteKey", scene.home.key, { keyId })).toEqual({});
      const { detail, fields } = await scene.refused(code, operation, scene.home.key, { keyId });
      expect(detail).toMatch(/requested key could not be found/);
      expect(fields).toBeUndefined();
    });
  }

  everyProtocol("is not found by whoami or verifyKey, and verifyKey returns no field of it", async (scene) => {
    const { keyId, key } = await createFullKey(scene);
    await scene.ok("deleteKey", scene.home.key, { keyId });
    await scene.refused(code, "whoami", scene.home.key, { key });
    const result = await scene.ok("verifyKey", scene.home.key, { key });
    expect(result).toEqual({ valid: false, code: "NOT_FOUND", permissions: [], roles: [], ratelimits: [] });
  });

  everyProtocol("is refused as a bearer token with key_not_found, in any previous state", async (scene) => {
    for (const state of [{}, { scopes: ["*"] }, { enabled: false }]) {
      const { keyId, key } = await createFullKey(scene, state);
      await scene.ok("deleteKey", scene.home.key, { keyId });
      await scene.refused("authentication/key_not_found", "listKeys", key);
    }
  });

  everyProtocol("is removed from every list, and no other key is", async (scene) => {
    const { keyId } = await createFullKey(scene);
    const other = await createFullKey(scene);
    await scene.ok("deleteKey", scene.home.key, { keyId });
    for (const [filter, left] of [
      [{}, [scene.home.keyId, other.keyId]],
      [{ externalId: "user_1" }, [other.keyId]],
      [{ enabled: true }, [scene.home.keyId, other.keyId]],
    ] as const) {
      const keys = await scene.ok("listKeys", scene.home.key, filter);
      expect(keys.map((key) => key.keyId)).toEqual(left);
    }
  });

  everyProtocol("does not delete its identity", async (scene) => {
    const { keyId } = await createFullKey(scene);
    await scene.ok("deleteKey", scene.home.key, { keyId });
    await scene.ok("getIdentity", scene.home.key, { externalId: "user_1" });
  });

  everyProtocol("stays deleted when its identity is deleted", async (scene) => {
    const { keyId } = await createFullKey(scene);
    await scene.ok("deleteKey", scene.home.key, { keyId });
    await scene.ok("deleteIdentity", scene.home.key, { externalId: "user_1" });
    await scene.refused(code, "getKey", scene.home.key, { keyId });
  });

  everyProtocol("may be the caller itself", async (scene) => {
    const { keyId, key } = await scene.ok("createKey", scene.home.key, { scopes: ["keys.delete"] });
    expect(await scene.ok("deleteKey", key, { keyId })).toEqual({});
    await scene.refused("authentication/key_not_found", "deleteKey", key, { keyId });
  });

  everyProtocol(
    "tenant isolation: gets the same error as a key that never existed, and as another workspace's key",
    async (scene) => {
      const other = await scene.newWorkspace();
      const { keyId } = await createFullKey(scene);
      await scene.ok("deleteKey", scene.home.key, { keyId });
      const never = "key_01jcz0000000000000000000zz";
      for (const operation of ["getKey", "updateKey", "deleteKey", "rerollKey"] as const) {
        const refusals = [];
        for (const id of [keyId, other.keyId, never, "no id at all", scene.home.keyId.toUpperCase()]) {
          refusals.push(await scene.refused(code, operation, scene.home.key, { keyId: id }));
        }
        for (const refusal of refusals) expect(refusal).toEqual(refusals[0]);
      }
    },
  );
});
