import { describe, expect } from "vitest";
import { keyOperations, operationOf, operatorOperations } from "../support/operations.js";
import { allProtocols, openContract } from "./cases.js";

const { everyProtocol } = openContract(allProtocols);
const code = "authorization/insufficient_permissions";

const scopesOfService = [...new Set(keyOperations.flatMap((name) => operationOf(name).scope ?? []))];

describe("authorization: the permissions of a key grant no operation, whatever their names:", () => {
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

describe("authorization: the roles of a key grant no operation, whatever their permissions:", () => {
  everyProtocol("a role with every permission and with the names of all scopes", async (scene) => {
    const { ok, refused, home } = scene;
    const permissions = ["*", "keys.*", ...scopesOfService];
    await ok("createRole", home.key, { name: "*", permissions });
    const { keyId, key } = await ok("createKey", home.key, { roles: ["*"] });
    for (const operation of [...keyOperations, ...operatorOperations]) {
      await refused(code, operation, key, operationOf(operation).wellFormed);
    }
    expect(await ok("getKey", home.key, { keyId })).toMatchObject({ scopes: [], permissions: [], roles: ["*"] });
    expect(await ok("verifyKey", home.key, { key })).toMatchObject({ code: "VALID", roles: ["*"] });
  });
});

describe("scopes and permissions", () => {
  everyProtocol("any caller that may create or change keys may grant any permissions", async (scene) => {
    const { ok, home } = scene;
    const { key } = await ok("createKey", home.key, { scopes: ["keys.create", "keys.update"] });
    for (const permissions of [["*"], ["keys.*", "documents:write"], ["identities.read"]]) {
      const { keyId } = await ok("createKey", key, { permissions });
      expect(await ok("getKey", home.key, { keyId })).toMatchObject({ scopes: [], permissions });
      const update = { keyId, permissions: ["documents.*", ...permissions] };
      expect(await ok("updateKey", key, update)).toMatchObject({ scopes: [], permissions: update.permissions });
    }
  });

  everyProtocol("a verification checks only permissions, and does not return the scopes", async (scene) => {
    const { ok, home } = scene;
    const { key } = await ok("createKey", home.key, { scopes: ["*"], permissions: ["documents.read"] });
    const result = await ok("verifyKey", home.key, { key, permissions: "documents.read" });
    expect(result).toMatchObject({ code: "VALID", permissions: ["documents.read"] });
    expect(result).not.toHaveProperty("scopes");
    for (const permissions of ["keys.read", "documents.write"]) {
      const { code } = await ok("verifyKey", home.key, { key, permissions });
      expect(code).toBe("INSUFFICIENT_PERMISSIONS");
    }
  });

  everyProtocol("a permission of the form noun:verb can be stored, returned and verified", async (scene) => {
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
