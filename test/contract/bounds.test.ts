import { describe, expect } from "vitest";
import { operatorKey } from "../support/harness.js";
import { newHash } from "./callers.js";
import { openContract } from "./cases.js";

const { everyProtocol } = openContract();

const lastMillisecond = Date.UTC(9999, 11, 31, 23, 59, 59, 999);

describe("limits of input: the maximum itself is accepted", () => {
  for (const [what, externalId] of [
    ["one character", "x"],
    ["255 characters", "x".repeat(255)],
    ["255 characters beyond the basic plane", "🗝".repeat(255)],
    ["spaces, soft hyphens and other invisible characters", " \u00a0\u00ad\u200b\u200d\u2028\ufeff"],
    ["quotes, slashes and wildcards", `'"\\/%_*;--?#&`],
    ["private and unassigned characters", "\ue000\u{10ffff}"],
  ] as const) {
    everyProtocol(`an externalId of ${what} is stored and returned unchanged`, async (scene) => {
      const { identityId } = await scene.ok("createIdentity", scene.home.key, { externalId });
      expect(await scene.ok("getIdentity", scene.home.key, { externalId })).toMatchObject({ identityId, externalId });
      await scene.ok("createKey", scene.home.key, { externalId });
      const [, key] = await scene.ok("listKeys", scene.home.key);
      expect(key?.identity).toMatchObject({ identityId, externalId });
    });
  }

  everyProtocol("a key may have 100 permissions, of 100 characters each, in the order given", async (scene) => {
    const permissions = Array.from({ length: 100 }, (_, index) => `p${99 - index}.`.padEnd(100, "x"));
    await scene.ok("createKey", scene.home.key, { permissions });
    const [, key] = await scene.ok("listKeys", scene.home.key);
    expect(key?.permissions).toEqual(permissions);
  });

  everyProtocol("a key may have 20 roles, and a role 100 permissions of 100 characters", async ({ ok, home }) => {
    const names = Array.from({ length: 20 }, (_, index) => `role ${index} `.padEnd(255, "ü"));
    const permissions = Array.from({ length: 100 }, (_, index) => `p${index}.`.padEnd(100, "x"));
    const description = "d".repeat(512);
    for (const name of names) await ok("createRole", home.key, { name, description });
    const [name = ""] = names;
    await ok("setRolePermissions", home.key, { roleId: name, permissions });
    const role = await ok("getRole", home.key, { role: name });
    expect(role).toMatchObject({ name, description });
    expect(role.permissions.map(({ slug }) => slug)).toEqual(permissions);
    const { keyId, key } = await ok("createKey", home.key, { roles: names });
    expect([...(await ok("getKey", home.key, { keyId })).roles].sort()).toEqual([...names].sort());
    const { permissions: granted = [] } = await ok("verifyKey", home.key, { key, permissions: permissions[99] });
    expect([...granted].sort()).toEqual([...permissions].sort());
  });

  everyProtocol("100 keys may be imported at once, and a verification may have 10 tags", async ({ ok, home }) => {
    const keys = Array.from({ length: 100 }, (_, index) => ({ hash: newHash(), name: `key ${index}` }));
    const { migrated, failed } = await ok("migrateKeys", home.key, { migrationId: "m".repeat(255), keys });
    expect({ hashes: migrated.map(({ hash }) => hash), failed }).toEqual({
      hashes: keys.map(({ hash }) => hash),
      failed: [],
    });
    const tags = Array.from({ length: 10 }, (_, index) => `${index}`.padEnd(128, "ü"));
    expect(await ok("verifyKey", home.key, { key: home.key, tags })).toMatchObject({ code: "VALID" });
  });

  everyProtocol("a namespace and an identifier may have 255 characters", async ({ ok, home }) => {
    const override = {
      namespace: "ü".repeat(255),
      identifier: `${"🗝".repeat(254)}*`,
      limit: 7,
      duration: 2_592_000_000,
    };
    const { overrideId } = await ok("setOverride", home.key, override);
    expect(
      await ok("getOverride", home.key, { namespace: override.namespace, identifier: override.identifier }),
    ).toEqual({
      ...override,
      overrideId,
    });
    const use = { ...override, identifier: "🗝".repeat(255), limit: 1_000_000_000, cost: 7 };
    expect(await ok("limit", home.key, use)).toMatchObject({ success: true, limit: 7, remaining: 0, overrideId });
  });

  everyProtocol("a key may expire at the end of the year 9999", async (scene) => {
    await scene.ok("createKey", scene.home.key, { expires: lastMillisecond });
    const [, key] = await scene.ok("listKeys", scene.home.key);
    expect(key?.expires).toBe(lastMillisecond);
  });

  everyProtocol("names of 255 characters and a note of 1000 are stored", async (scene) => {
    const name = "ü".repeat(255);
    const note = "n".repeat(1000);
    await scene.ok("createKey", scene.home.key, { name });
    const [, key] = await scene.ok("listKeys", scene.home.key);
    expect(key?.name).toBe(name);
    const { workspaceId } = await scene.ok("createWorkspace", operatorKey, { name });
    const disabled = await scene.ok("disableWorkspace", operatorKey, { workspaceId, reason: "OWNER_REQUEST", note });
    expect(disabled).toMatchObject({ name, disabledNote: note });
  });

  everyProtocol("a meta of 16 KiB is stored, also one whose protobuf encoding is the largest", async (scene) => {
    const meta = { a: Array((16 * 1024 - '{"a":[]}'.length) / 2).fill(1) };
    await scene.ok("createIdentity", scene.home.key, { externalId: "user_1", meta });
    const identity = await scene.ok("getIdentity", scene.home.key, { externalId: "user_1" });
    expect(identity.meta).toEqual(meta);
  });

  everyProtocol("a meta of 16 KiB is stored, at any position among the fields", async (scene) => {
    const meta = { a: "x".repeat(16 * 1024 - '{"a":""}'.length) };
    const { identityId } = await scene.ok("createIdentity", scene.home.key, { meta, externalId: "user_1" });
    const identity = await scene.ok("getIdentity", scene.home.key, { identityId });
    expect(identity.meta).toEqual(meta);
  });

  everyProtocol("a meta of 16 KiB is returned unchanged, and a larger one is refused and named", async (scene) => {
    const meta = { text: "é".repeat((16 * 1024 - '{"text":""}'.length - 1) / 2) };
    await scene.ok("createIdentity", scene.home.key, { externalId: "user_1", meta });
    const identity = await scene.ok("getIdentity", scene.home.key, { externalId: "user_1" });
    expect(identity.meta).toEqual(meta);
    const larger = { text: `${meta.text}éé` };
    const request = { externalId: "user_2", meta: larger };
    const refusal = await scene.refused("application/invalid_input", "createIdentity", scene.home.key, request);
    expect(refusal).toMatchObject({ fields: [{ location: "meta" }] });
  });
});
