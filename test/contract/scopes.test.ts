import { describe, expect } from "vitest";
import { allProtocols, openContract } from "./cases.js";
import { keyOperations, operationOf, operatorOperations } from "./operations.js";

const { everyProtocol } = openContract(allProtocols);
const code = "authorization/insufficient_permissions";

const scopesOfService = [...new Set(keyOperations.flatMap((name) => operationOf(name).scope ?? []))];

describe("the permissions of a customer's key allow nothing here, whatever they are called:", () => {
  for (const permissions of [
    ["*"],
    ["keys.read"],
    ["keys.*"],
    ["identities.*", "audit.*", "keys.*"],
    scopesOfService,
  ]) {
    everyProtocol(`${permissions.slice(0, 3).join(", ")} cannot call any operation`, async (scene) => {
      const { ok, refused, home } = scene;
      const { keyId, key } = await ok("createKey", home.key, { permissions });
      for (const operation of [...keyOperations, ...operatorOperations]) {
        const { detail } = await refused(code, operation, key, operationOf(operation).wellFormed);
        const { scope } = operationOf(operation);
        if (scope !== undefined) expect(detail).toContain(`lacks the scope \`${scope}\``);
      }
      expect(await ok("getKey", home.key, { keyId })).toMatchObject({ scopes: [], permissions });
      expect(await ok("verifyKey", home.key, { key })).toMatchObject({ code: "VALID", permissions });
    });
  }
});

describe("scopes and permissions", () => {
  everyProtocol("any caller that may create or change keys may give any permissions", async (scene) => {
    const { ok, home } = scene;
    const { key } = await ok("createKey", home.key, { scopes: ["keys.create", "keys.update"] });
    for (const permissions of [["*"], ["keys.*", "documents:write"], ["identities.read"]]) {
      const { keyId } = await ok("createKey", key, { permissions });
      expect(await ok("getKey", home.key, { keyId })).toMatchObject({ scopes: [], permissions });
      const update = { keyId, permissions: ["documents.*", ...permissions] };
      expect(await ok("updateKey", key, update)).toMatchObject({ scopes: [], permissions: update.permissions });
    }
  });

  everyProtocol("a verification compares permissions alone, and does not tell the scopes", async (scene) => {
    const { ok, home } = scene;
    const { key } = await ok("createKey", home.key, { scopes: ["*"], permissions: ["documents.read"] });
    const verdict = await ok("verifyKey", home.key, { key, permissions: "documents.read" });
    expect(verdict).toMatchObject({ code: "VALID", permissions: ["documents.read"] });
    expect(verdict).not.toHaveProperty("scopes");
    for (const permissions of ["keys.read", "documents.write"]) {
      const { code } = await ok("verifyKey", home.key, { key, permissions });
      expect(code).toBe("INSUFFICIENT_PERMISSIONS");
    }
  });

  everyProtocol("a permission of the form noun:verb is stored, told and asked for", async (scene) => {
    const { ok, home } = scene;
    const permissions = ["documents:write", "a:b.c:d", ":", "files:read.*"];
    const { key } = await ok("createKey", home.key, { permissions });
    for (const query of ["documents:write", "a:b.c:d AND :", "documents:write AND (x OR files:read.all)"]) {
      expect(await ok("verifyKey", home.key, { key, permissions: query })).toMatchObject({
        code: "VALID",
        permissions,
      });
    }
    for (const query of ["documents", "documents.write", "documents:read", "files:read"]) {
      expect((await ok("verifyKey", home.key, { key, permissions: query })).code).toBe("INSUFFICIENT_PERMISSIONS");
    }
  });
});
