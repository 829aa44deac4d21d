import { describe, expect } from "vitest";
import { openContract } from "./cases.js";
import type { Scene } from "./scene.js";

const { everyProtocol } = openContract();
const missing = "data/role_not_found";
const invalid = "application/invalid_input";
const noRole = "role_00000000000000000000000000";

const uncatalogued = (slug: string) => ({ id: slug, name: slug, slug });

/** The code of a verification that requires a permission. */
const codeFor = async ({ ok, home }: Scene, key: string, permissions: string) =>
  (await ok("verifyKey", home.key, { key, permissions })).code;

describe("a role", () => {
  everyProtocol("is found by its id and by its name, with its permissions in their order", async (scene) => {
    const { ok, home } = scene;
    const request = { name: "editor", description: "Edits.", permissions: ["b.write", "a:read", "c.*", "*"] };
    const { roleId } = await ok("createRole", home.key, request);
    expect(roleId).toMatch(/^role_[0-9a-z]{26}$/);
    const role = {
      id: roleId,
      name: "editor",
      description: "Edits.",
      permissions: request.permissions.map(uncatalogued),
    };
    expect(await ok("getRole", home.key, { role: roleId })).toEqual(role);
    expect(await ok("getRole", home.key, { role: "editor" })).toEqual(role);
    const { roleId: second } = await ok("createRole", home.key, { name: "empty" });
    expect(await ok("listRoles", home.key)).toEqual([role, { id: second, name: "empty", permissions: [] }]);
  });

  everyProtocol("may have any name but the form of an id; keys return it unchanged", async (scene) => {
    const { ok, refused, home } = scene;
    const names = ['a, "b" {c} \\d\\', "NULL", "'; drop table roles", "Rôle 🗝️", " ", "role_editor"];
    for (const name of names) await ok("createRole", home.key, { name });
    const { keyId, key } = await ok("createKey", home.key, { roles: names });
    const roles = (await ok("getKey", home.key, { keyId })).roles;
    expect([...roles].sort()).toEqual([...names].sort());
    expect((await ok("verifyKey", home.key, { key })).roles).toEqual(roles);
    for (const name of ["", "x".repeat(256), "a\0", noRole]) {
      const { fields } = await refused(invalid, "createRole", home.key, { name });
      expect(fields).toMatchObject([{ location: "name" }]);
    }
  });

  everyProtocol("has a name that is unique in its workspace until it is deleted", async (scene) => {
    const { ok, refused, home } = scene;
    const { roleId } = await ok("createRole", home.key, { name: "editor", permissions: ["a"] });
    await refused("data/role_already_exists", "createRole", home.key, { name: "editor", permissions: ["b"] });
    await ok("createRole", home.key, { name: "Editor" });
    const other = await scene.newWorkspace();
    await ok("createRole", other.key, { name: "editor" });
    await ok("deleteRole", home.key, { role: "editor" });
    const { roleId: second } = await ok("createRole", home.key, { name: "editor" });
    expect(second).not.toBe(roleId);
    expect(await ok("getRole", home.key, { role: "editor" })).toEqual({ id: second, name: "editor", permissions: [] });
  });

  everyProtocol("is listed in pages, and found by a part of its name in any letter case", async (scene) => {
    const { ok, page, home } = scene;
    for (const name of ["Reader", "writer", "READ-write", "admin"]) await ok("createRole", home.key, { name });
    const first = await page("listRoles", home.key, { limit: 3 });
    expect(first).toMatchObject({ data: [{ name: "Reader" }, { name: "writer" }, { name: "READ-write" }] });
    const rest = await page("listRoles", home.key, { limit: 3, cursor: first.pagination?.cursor });
    expect(rest).toMatchObject({ data: [{ name: "admin" }], pagination: { hasMore: false } });
    const found = await ok("listRoles", home.key, { search: "read" });
    expect(found.map(({ name }) => name)).toEqual(["Reader", "READ-write"]);
    expect(await ok("listRoles", home.key, { search: "%" })).toEqual([]);
  });

  everyProtocol("that does not exist in the workspace is named by the error", async (scene) => {
    const { ok, refused, home } = scene;
    const other = await scene.newWorkspace();
    const { roleId: foreign } = await ok("createRole", other.key, { name: "theirs", permissions: ["a"] });
    const { roleId: deleted } = await ok("createRole", home.key, { name: "former" });
    await ok("deleteRole", home.key, { role: deleted });
    const { keyId } = await ok("createKey", home.key);
    await ok("createRole", home.key, { name: "mine" });
    for (const role of [noRole, "nobody", foreign, "theirs", deleted, "former"]) {
      const refusals = [
        await refused(missing, "getRole", home.key, { role }),
        await refused(missing, "deleteRole", home.key, { role }),
        await refused(missing, "setRolePermissions", home.key, { roleId: role, permissions: [] }),
        await refused(missing, "createKey", home.key, { roles: ["mine", role], externalId: "user_1" }),
        await refused(missing, "updateKey", home.key, { keyId, roles: ["mine", role] }),
        await refused(missing, "addRoles", home.key, { keyId, roles: ["mine", role] }),
        await refused(missing, "setRoles", home.key, { keyId, roles: ["mine", role] }),
      ];
      for (const { detail } of refusals) expect(detail).toContain(role);
    }
    expect(await ok("getKey", home.key, { keyId })).toMatchObject({ roles: [] });
    expect(await ok("listIdentities", home.key)).toEqual([]);
    expect(await ok("getRole", other.key, { role: "theirs" })).toMatchObject({ permissions: [{ slug: "a" }] });
  });
});

describe("a key with roles", () => {
  everyProtocol("has their permissions besides its own, and its scopes do not change", async (scene) => {
    const { ok, home } = scene;
    await ok("createRole", home.key, { name: "reader", permissions: ["documents.read", "shared"] });
    const { roleId } = await ok("createRole", home.key, { name: "writer", permissions: ["documents.write", "shared"] });
    const { keyId, key } = await ok("createKey", home.key, {
      roles: ["reader", roleId],
      permissions: ["own", "shared"],
    });
    expect(await ok("getKey", home.key, { keyId })).toMatchObject({
      roles: ["reader", "writer"],
      permissions: ["own", "shared"],
      scopes: [],
    });
    const verified = await ok("verifyKey", home.key, { key });
    expect([...(verified.permissions ?? [])].sort()).toEqual(["documents.read", "documents.write", "own", "shared"]);
    expect(verified.roles).toEqual(["reader", "writer"]);
    expect(await codeFor(scene, key, "own AND documents.read AND documents.write")).toBe("VALID");
  });

  everyProtocol("of which none has a permission has its own, or none", async (scene) => {
    const { ok, home } = scene;
    await ok("createRole", home.key, { name: "empty" });
    const { key } = await ok("createKey", home.key, { roles: ["empty"] });
    expect(await ok("verifyKey", home.key, { key })).toMatchObject({
      code: "VALID",
      permissions: [],
      roles: ["empty"],
    });
  });

  everyProtocol("gains and loses permissions with the role, from the moment that the change returns", async (scene) => {
    const { ok, home } = scene;
    const { roleId } = await ok("createRole", home.key, { name: "editor", permissions: ["a"] });
    const { key } = await ok("createKey", home.key, { roles: ["editor"] });
    expect(await codeFor(scene, key, "a")).toBe("VALID");
    expect(await ok("setRolePermissions", home.key, { roleId, permissions: ["b", "c"] })).toEqual(
      ["b", "c"].map(uncatalogued),
    );
    expect(await codeFor(scene, key, "a")).toBe("INSUFFICIENT_PERMISSIONS");
    expect(await codeFor(scene, key, "b AND c")).toBe("VALID");
    await ok("setRolePermissions", home.key, { roleId: "editor", permissions: [] });
    expect(await codeFor(scene, key, "b")).toBe("INSUFFICIENT_PERMISSIONS");
    await ok("setRolePermissions", home.key, { roleId, permissions: ["b"] });
    expect(await codeFor(scene, key, "b")).toBe("VALID");
    await ok("deleteRole", home.key, { role: "editor" });
    expect(await codeFor(scene, key, "b")).toBe("INSUFFICIENT_PERMISSIONS");
    expect(await ok("verifyKey", home.key, { key })).toMatchObject({ code: "VALID", roles: [] });
    await scene.refused(missing, "deleteRole", home.key, { role: roleId });
  });

  everyProtocol("does not get a role that has the same name as a deleted one", async (scene) => {
    const { ok, home } = scene;
    await ok("createRole", home.key, { name: "editor", permissions: ["a"] });
    const { keyId, key } = await ok("createKey", home.key, { roles: ["editor"] });
    await ok("deleteRole", home.key, { role: "editor" });
    await ok("createRole", home.key, { name: "editor", permissions: ["*"] });
    expect(await ok("getKey", home.key, { keyId })).toMatchObject({ roles: [] });
    expect(await codeFor(scene, key, "a")).toBe("INSUFFICIENT_PERMISSIONS");
  });

  everyProtocol("passes them on to its successor", async (scene) => {
    const { ok, home } = scene;
    await ok("createRole", home.key, { name: "editor", permissions: ["a"] });
    const { keyId } = await ok("createKey", home.key, { roles: ["editor"] });
    const successor = await ok("rerollKey", home.key, { keyId });
    expect(await codeFor(scene, successor.key, "a")).toBe("VALID");
  });
});

describe("changes of roles", () => {
  everyProtocol("are recorded, and a change that changes nothing is not", async (scene) => {
    const { ok, home } = scene;
    const { roleId } = await ok("createRole", home.key, { name: "editor", permissions: ["a"] });
    await ok("setRolePermissions", home.key, { roleId, permissions: ["a"] });
    await ok("setRolePermissions", home.key, { roleId, permissions: ["b"] });
    await ok("deleteRole", home.key, { role: roleId });
    const events = await ok("listAuditEvents", home.key, { resourceId: roleId });
    expect(events.map(({ type, before, after }) => [type, before?.["permissions"], after?.["permissions"]])).toEqual([
      ["role.delete", ["b"], undefined],
      ["role.update", ["a"], ["b"]],
      ["role.create", undefined, ["a"]],
    ]);
  });
});
