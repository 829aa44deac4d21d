import { describe, expect } from "vitest";
import type { CallRequest } from "../support/clients/protocol-client.js";
import type { OperationName } from "../support/operations.js";
import { openContract } from "./cases.js";
import { readSettings } from "./key-settings.js";
import type { Scene } from "./scene.js";

const { everyProtocol } = openContract();
const invalid = "application/invalid_input";
const lacking = "authorization/insufficient_permissions";

const slugs = (permissions: { slug: string }[]) => permissions.map(({ slug }) => slug);
const names = (roles: { name: string }[]) => roles.map(({ name }) => name);

async function createRoles({ ok, home }: Scene, ...roles: string[]): Promise<void> {
  for (const name of roles) await ok("createRole", home.key, { name, permissions: [`${name}.do`] });
}

describe("the permissions of a key", () => {
  everyProtocol("can be added, removed and replaced; the response contains all that the key has", async (scene) => {
    const { ok, home } = scene;
    const { keyId, key } = await ok("createKey", home.key, { permissions: ["a"], name: "kept" });
    expect(slugs(await ok("addPermissions", home.key, { keyId, permissions: ["c", "a", "b:x.*"] }))).toEqual([
      "a",
      "c",
      "b:x.*",
    ]);
    expect(await ok("verifyKey", home.key, { key, permissions: "a AND c AND b:x.y" })).toMatchObject({ code: "VALID" });
    expect(slugs(await ok("removePermissions", home.key, { keyId, permissions: ["a", "unknown"] }))).toEqual([
      "c",
      "b:x.*",
    ]);
    expect(await ok("verifyKey", home.key, { key, permissions: "a" })).toMatchObject({ valid: false });
    expect(slugs(await ok("setPermissions", home.key, { keyId, permissions: ["z"] }))).toEqual(["z"]);
    expect(await ok("verifyKey", home.key, { key, permissions: "c" })).toMatchObject({ valid: false });
    expect(await ok("setPermissions", home.key, { keyId, permissions: [] })).toEqual([]);
    expect(await readSettings(scene, keyId)).toMatchObject({ permissions: [], name: "kept" });
  });

  everyProtocol("are at most 100, also in all; nothing is changed beyond that", async (scene) => {
    const { ok, refused, home } = scene;
    const some = (from: number, count: number) => Array.from({ length: count }, (_, index) => `p${from + index}`);
    const { keyId } = await ok("createKey", home.key, { permissions: some(0, 60) });
    for (const permissions of [some(60, 41), some(0, 101)]) {
      const { fields } = await refused(invalid, "addPermissions", home.key, { keyId, permissions });
      expect(fields).toMatchObject([{ location: "permissions" }]);
    }
    expect((await readSettings(scene, keyId)).permissions).toHaveLength(60);
    expect(await ok("addPermissions", home.key, { keyId, permissions: some(40, 60) })).toHaveLength(100);
  });

  everyProtocol("that are malformed or repeated are refused; at least one must be added or removed", async (scene) => {
    const { ok, refused, home } = scene;
    const { keyId } = await ok("createKey", home.key);
    for (const operation of ["addPermissions", "removePermissions", "setPermissions"] as const) {
      for (const permissions of [["not a permission"], ["a", "a"], ["x".repeat(101)]]) {
        const { fields } = await refused(invalid, operation, home.key, { keyId, permissions });
        expect(fields?.[0]?.location).toMatch(/^permissions/);
      }
      if (operation !== "setPermissions") await refused(invalid, operation, home.key, { keyId, permissions: [] });
    }
  });

  everyProtocol("that are added at the same time are all kept", async (scene) => {
    const { ok, home } = scene;
    const { keyId } = await ok("createKey", home.key);
    const added = ["a", "b", "c", "d", "e"];
    await Promise.all(
      added.map((slug) => scene.protocol.call("addPermissions", home.key, { keyId, permissions: [slug] })),
    );
    // Not in the transcript: the order of the changes differs between protocols.
    const outcome = await scene.protocol.call("getKey", home.key, { keyId });
    expect(outcome).toMatchObject({ data: { permissions: expect.arrayContaining(added) } });
  });
});

describe("the roles of a key", () => {
  everyProtocol("can be added, removed and replaced, by name and by id", async (scene) => {
    const { ok, home } = scene;
    await createRoles(scene, "a", "b", "c");
    const { id } = await ok("getRole", home.key, { role: "c" });
    const { keyId, key } = await ok("createKey", home.key);
    const added = await ok("addRoles", home.key, { keyId, roles: ["b", id] });
    expect(added).toMatchObject([
      { name: "b", permissions: [{ slug: "b.do" }] },
      { name: "c", id, permissions: [{ slug: "c.do" }] },
    ]);
    expect(names(await ok("addRoles", home.key, { keyId, roles: ["c", "a"] }))).toEqual(["a", "b", "c"]);
    expect(await ok("verifyKey", home.key, { key, permissions: "a.do AND b.do AND c.do" })).toMatchObject({
      valid: true,
    });
    expect(names(await ok("removeRoles", home.key, { keyId, roles: ["a", id, "unknown"] }))).toEqual(["b"]);
    expect(await ok("verifyKey", home.key, { key, permissions: "c.do" })).toMatchObject({ valid: false });
    expect(names(await ok("setRoles", home.key, { keyId, roles: ["a"] }))).toEqual(["a"]);
    expect(await ok("verifyKey", home.key, { key, permissions: "b.do" })).toMatchObject({ valid: false });
    expect(await ok("setRoles", home.key, { keyId, roles: [] })).toEqual([]);
    expect(await ok("verifyKey", home.key, { key, permissions: "a.do" })).toMatchObject({ valid: false });
  });

  everyProtocol("are at most 20, also in all; deleted roles do not count", async (scene) => {
    const { ok, refused, home } = scene;
    const roles = Array.from({ length: 22 }, (_, index) => `role-${String(index).padStart(2, "0")}`);
    await createRoles(scene, ...roles);
    const { keyId } = await ok("createKey", home.key, { roles: roles.slice(0, 19) });
    for (const [operation, added] of [
      ["addRoles", roles.slice(19, 21)],
      ["addRoles", roles],
      ["setRoles", roles.slice(0, 21)],
    ] as [OperationName, string[]][]) {
      const { fields } = await refused(invalid, operation, home.key, { keyId, roles: added });
      expect(fields).toMatchObject([{ location: "roles" }]);
    }
    expect(await ok("addRoles", home.key, { keyId, roles: roles.slice(10, 20) })).toHaveLength(20);
    await ok("deleteRole", home.key, { role: roles[0] });
    expect(names(await ok("addRoles", home.key, { keyId, roles: roles.slice(20, 21) }))).toEqual(roles.slice(1, 21));
  });

  everyProtocol("that are added at the same time are all kept", async (scene) => {
    const { ok, home } = scene;
    const roles = ["a", "b", "c", "d"];
    await createRoles(scene, ...roles);
    const { keyId } = await ok("createKey", home.key);
    await Promise.all(roles.map((role) => scene.protocol.call("addRoles", home.key, { keyId, roles: [role] })));
    expect((await readSettings(scene, keyId)).roles).toEqual(roles);
  });
});

describe("a caller", () => {
  everyProtocol("may change the permissions and roles only of keys whose scopes it has", async (scene) => {
    const { ok, refused, home } = scene;
    await createRoles(scene, "a");
    const caller = await ok("createKey", home.key, { scopes: ["keys.update"] });
    const stronger = await ok("createKey", home.key, { scopes: ["keys.read"], permissions: ["a"], roles: ["a"] });
    const { keyId } = stronger;
    const changes: [OperationName, CallRequest][] = [
      ["addPermissions", { permissions: ["b"] }],
      ["removePermissions", { permissions: ["a"] }],
      ["setPermissions", { permissions: [] }],
      ["addRoles", { roles: ["a"] }],
      ["removeRoles", { roles: ["a"] }],
      ["setRoles", { roles: [] }],
    ];
    for (const [operation, change] of changes) {
      await refused(lacking, operation, caller.key, { keyId, ...change });
      await refused("data/key_not_found", operation, caller.key, { keyId: `${keyId}x`, ...change });
      await ok(operation, caller.key, { keyId: (await ok("createKey", home.key)).keyId, ...change });
      await ok(operation, caller.key, { keyId: caller.keyId, ...change });
    }
    expect(await readSettings(scene, keyId)).toMatchObject({ permissions: ["a"], roles: ["a"] });
  });

  everyProtocol("finds every change in the audit events of the key", async (scene) => {
    const { ok, home } = scene;
    await createRoles(scene, "a");
    const { id } = await ok("getRole", home.key, { role: "a" });
    const { keyId } = await ok("createKey", home.key, { permissions: ["x"] });
    await ok("addPermissions", home.key, { keyId, permissions: ["y"] });
    await ok("addPermissions", home.key, { keyId, permissions: ["y"] }); // changes nothing
    await ok("addRoles", home.key, { keyId, roles: ["a"] });
    await ok("removeRoles", home.key, { keyId, roles: ["a"] });
    const events = await ok("listAuditEvents", home.key, { resourceId: keyId });
    expect(events.map(({ type, after }) => [type, after?.["permissions"], after?.["roles"]])).toEqual([
      ["key.update", ["x", "y"], []],
      ["key.update", ["x", "y"], [id]],
      ["key.update", ["x", "y"], []],
      ["key.create", ["x"], []],
    ]);
  });
});
