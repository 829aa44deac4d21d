import { describe, expect } from "vitest";
import { openContract } from "./cases.js";

const { everyProtocol } = openContract();
const missing = "data/permission_not_found";
const inUse = "data/permission_in_use";
const invalid = "application/invalid_input";

describe("the catalogue of permissions", () => {
  everyProtocol("contains what was added, found by id and by slug", async (scene) => {
    const { ok, refused, home } = scene;
    const request = { name: "Read documents", slug: "documents.read", description: "Also drafts." };
    const { permissionId } = await ok("createPermission", home.key, request);
    expect(permissionId).toMatch(/^perm_[0-9a-z]{26}$/);
    const permission = { id: permissionId, ...request };
    expect(await ok("getPermission", home.key, { permission: permissionId })).toEqual(permission);
    expect(await ok("getPermission", home.key, { permission: "documents.read" })).toEqual(permission);
    expect(await ok("listPermissions", home.key)).toEqual([permission]);
    await refused("data/permission_already_exists", "createPermission", home.key, { ...request, name: "Another" });
    const other = await scene.newWorkspace();
    await refused(missing, "getPermission", other.key, { permission: "documents.read" });
    await refused(missing, "getPermission", other.key, { permission: permissionId });
    await refused(missing, "deletePermission", other.key, { permission: permissionId });
    await ok("createPermission", other.key, request);
  });

  everyProtocol("refuses slugs with wildcards, with other characters and in the form of an id", async (scene) => {
    for (const slug of ["", "*", "a.*", "a..b", "a b", "é", "x".repeat(101), "perm_00000000000000000000000000"]) {
      const { fields } = await scene.refused(invalid, "createPermission", scene.home.key, { name: "x", slug });
      expect(fields).toMatchObject([{ location: "slug" }]);
    }
  });

  everyProtocol("is listed in pages, and searched by a part of the slug in any letter case", async (scene) => {
    const { ok, page, home } = scene;
    for (const slug of ["documents.read", "Documents.write", "files.read"]) {
      await ok("createPermission", home.key, { name: "documents", slug });
    }
    const first = await page("listPermissions", home.key, { limit: 2 });
    expect(first.data.map(({ slug }) => slug)).toEqual(["documents.read", "Documents.write"]);
    const rest = await page("listPermissions", home.key, { limit: 2, cursor: first.pagination?.cursor });
    expect(rest).toMatchObject({ data: [{ slug: "files.read" }], pagination: { hasMore: false } });
    const found = await ok("listPermissions", home.key, { search: "DOC" });
    expect(found.map(({ slug }) => slug)).toEqual(["documents.read", "Documents.write"]);
  });

  everyProtocol("describes the permissions of keys and roles; others are described by their slugs", async (scene) => {
    const { ok, home } = scene;
    const { permissionId } = await ok("createPermission", home.key, { name: "Read", slug: "a.read", description: "d" });
    const described = { id: permissionId, name: "Read", slug: "a.read", description: "d" };
    const other = { id: "b", name: "b", slug: "b" };
    const { roleId } = await ok("createRole", home.key, { name: "r", permissions: ["b", "a.read"] });
    expect(await ok("getRole", home.key, { role: roleId })).toMatchObject({ permissions: [other, described] });
    const { keyId } = await ok("createKey", home.key, { permissions: ["a.read"] });
    expect(await ok("addPermissions", home.key, { keyId, permissions: ["b"] })).toEqual([described, other]);
    expect(await ok("setRolePermissions", home.key, { roleId, permissions: ["a.read"] })).toEqual([described]);
    const foreign = await scene.newWorkspace();
    const { roleId: theirs } = await ok("createRole", foreign.key, { name: "r", permissions: ["a.read"] });
    expect(await ok("getRole", foreign.key, { role: theirs })).toMatchObject({
      permissions: [{ id: "a.read", name: "a.read", slug: "a.read" }],
    });
  });

  everyProtocol("decides nothing: keys have permissions that it does not contain", async (scene) => {
    const { ok, home } = scene;
    const { key } = await ok("createKey", home.key, { permissions: ["a"] });
    await ok("createPermission", home.key, { name: "B", slug: "b" });
    expect(await ok("verifyKey", home.key, { key, permissions: "a" })).toMatchObject({ code: "VALID" });
    expect(await ok("verifyKey", home.key, { key, permissions: "b" })).toMatchObject({ valid: false });
  });
});

describe("deleting a permission", () => {
  everyProtocol("is refused while a key or a role has it, and not because of keys elsewhere", async (scene) => {
    const { ok, refused, home } = scene;
    const { permissionId } = await ok("createPermission", home.key, { name: "A", slug: "a" });
    const other = await scene.newWorkspace();
    await ok("createKey", other.key, { permissions: ["a"] });
    await ok("createRole", other.key, { name: "r", permissions: ["a"] });
    // Neither a wildcard nor a longer name is this permission.
    const { keyId } = await ok("createKey", home.key, { permissions: ["x", "a", "*", "a.*", "a.b"] });
    const { roleId } = await ok("createRole", home.key, { name: "r", permissions: ["b", "a"] });
    await refused(inUse, "deletePermission", home.key, { permission: "a" });
    await ok("removePermissions", home.key, { keyId, permissions: ["a"] });
    await refused(inUse, "deletePermission", home.key, { permission: permissionId });
    await ok("setRolePermissions", home.key, { roleId, permissions: ["b"] });
    const { keyId: deleted } = await ok("createKey", home.key, { permissions: ["a"] });
    await ok("deleteKey", home.key, { keyId: deleted });
    await ok("createRole", home.key, { name: "former", permissions: ["a"] });
    await ok("deleteRole", home.key, { role: "former" });
    const { apiId } = await ok("createApi", home.key, { name: "former" });
    await ok("createKey", home.key, { apiId, permissions: ["a"] });
    await refused(inUse, "deletePermission", home.key, { permission: "a" });
    await ok("deleteApi", home.key, { apiId });
    await ok("deletePermission", home.key, { permission: "a" });
    await refused(missing, "deletePermission", home.key, { permission: "a" });
    expect(await ok("listPermissions", home.key)).toEqual([]);
    const events = await ok("listAuditEvents", home.key, { resourceId: permissionId });
    expect(events.map(({ type }) => type)).toEqual(["permission.delete", "permission.create"]);
    await ok("createPermission", home.key, { name: "A", slug: "a" });
  });
});
