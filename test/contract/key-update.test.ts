import { describe, expect } from "vitest";
import { openContract } from "./cases.js";
import { createFullKey, day, readAllSettings, readSettings, type Settings, settingsOf } from "./key-settings.js";
import type { Scene } from "./scene.js";

const { everyProtocol } = openContract();
const invalid = "application/invalid_input";

/** Each field with another value. */
const changes: Record<string, (scene: Scene) => Partial<Settings>> = {
  name: () => ({ name: "zweiter Name 🗝️" }),
  scopes: () => ({ scopes: ["keys.*", "audit.read"] }),
  permissions: () => ({ permissions: ["documents.*", "a:b", "*"] }),
  meta: () => ({ meta: { nested: { list: [null, 1.5, "x"] } } }),
  expires: ({ clock }) => ({ expires: clock.now() + 60 * day + 123 }),
  enabled: () => ({ enabled: false }),
  "name, meta and enabled": () => ({ name: "second", meta: {}, enabled: false }),
};

/** Each field that can be cleared, and the part of the key that is then unset. */
const clearable = { name: "name", meta: "meta", expires: "expires", identityId: "identity", externalId: "identity" };

/** These settings without some of the fields. */
function without(settings: Settings, ...fields: string[]): Partial<Settings> {
  return Object.fromEntries(Object.entries(settings).filter(([field]) => !fields.includes(field)));
}

describe("updating a key", () => {
  for (const [what, changeOf] of Object.entries(changes)) {
    everyProtocol(`${what} can be set; omitted fields stay, and updatedAt changes`, async (scene) => {
      const { keyId } = await createFullKey(scene);
      const before = await readSettings(scene, keyId);
      await scene.clock.advance(1000);
      const change = changeOf(scene);
      const after = await scene.ok("updateKey", scene.home.key, { keyId, ...change });
      expect(after).toEqual({ ...before, ...change, updatedAt: expect.any(Number) });
      expect(after.updatedAt).toBeGreaterThanOrEqual(before.updatedAt + 1000);
      expect(await readSettings(scene, keyId)).toEqual(after);
    });
  }

  for (const [field, part] of Object.entries(clearable)) {
    everyProtocol(`${field} can be cleared, and nothing else changes`, async (scene) => {
      const { keyId } = await createFullKey(scene);
      const before = await readSettings(scene, keyId);
      const after = await scene.ok("updateKey", scene.home.key, { keyId, [field]: null });
      expect(without(after, "updatedAt")).toEqual(without(before, part, "updatedAt"));
      expect(await readSettings(scene, keyId)).toEqual(after);
    });

    everyProtocol(`${field} that is unset can be cleared again`, async (scene) => {
      const { keyId } = await scene.ok("createKey", scene.home.key);
      const before = await readSettings(scene, keyId);
      const after = await scene.ok("updateKey", scene.home.key, { keyId, [field]: null });
      expect(without(after, "updatedAt")).toEqual(without(before, "updatedAt"));
    });
  }

  for (const [how, none] of [
    ["null", null],
    ["an empty list", []],
  ] as const) {
    everyProtocol(`scopes can be cleared by ${how}: the key can then only be verified`, async (scene) => {
      const { keyId, key } = await createFullKey(scene, { scopes: ["*"] });
      const before = await readSettings(scene, keyId);
      const after = await scene.ok("updateKey", scene.home.key, { keyId, scopes: none });
      expect(after).toEqual({ ...before, scopes: [], updatedAt: after.updatedAt });
      await scene.refused("authorization/insufficient_permissions", "listKeys", key);
      expect(await scene.ok("verifyKey", scene.home.key, { key })).toMatchObject({ code: "VALID" });
    });

    everyProtocol(
      `permissions can be cleared by ${how}: the key then has none, and keeps its scopes`,
      async (scene) => {
        const { keyId, key } = await createFullKey(scene, { scopes: ["keys.read"], permissions: ["*"] });
        const before = await readSettings(scene, keyId);
        const after = await scene.ok("updateKey", scene.home.key, { keyId, permissions: none });
        expect(after).toEqual({ ...before, permissions: [], updatedAt: after.updatedAt });
        await scene.ok("listKeys", key);
        const request = { key, permissions: "documents.read" };
        expect(await scene.ok("verifyKey", scene.home.key, request)).toMatchObject({
          code: "INSUFFICIENT_PERMISSIONS",
        });
      },
    );
  }

  everyProtocol("one update can set some fields and clear others", async (scene) => {
    const { keyId } = await createFullKey(scene);
    const before = await readSettings(scene, keyId);
    const request = {
      keyId,
      name: "second",
      meta: null,
      expires: null,
      enabled: false,
      scopes: null,
      permissions: null,
    };
    const after = await scene.ok("updateKey", scene.home.key, request);
    const { updatedAt } = after;
    const changed = { name: "second", enabled: false, scopes: [], permissions: [], updatedAt };
    expect(after).toEqual({ ...without(before, "meta", "expires"), ...changed });
  });

  everyProtocol("all clearable fields can be cleared in one update", async (scene) => {
    const { keyId } = await createFullKey(scene);
    const cleared = { name: null, externalId: null, scopes: null, permissions: null, meta: null, expires: null };
    const after = await scene.ok("updateKey", scene.home.key, { keyId, ...cleared });
    const left = ["keyId", "workspaceId", "start", "enabled", "scopes", "permissions", "roles", "ratelimits"];
    left.push("createdAt", "updatedAt");
    expect(Object.keys(after).sort()).toEqual(left.sort());
  });

  everyProtocol("meta is replaced as a whole, not merged", async (scene) => {
    const { keyId } = await createFullKey(scene, { meta: { a: 1, b: { c: 2 } } });
    expect((await scene.ok("updateKey", scene.home.key, { keyId, meta: { b: {} } })).meta).toStrictEqual({ b: {} });
    expect((await scene.ok("updateKey", scene.home.key, { keyId, meta: {} })).meta).toStrictEqual({});
  });

  everyProtocol("enabled cannot be cleared: it is named, and nothing of the update is applied", async (scene) => {
    const { keyId } = await createFullKey(scene);
    const before = await readSettings(scene, keyId);
    const request = { keyId, name: "second", enabled: null };
    const { fields } = await scene.refused(invalid, "updateKey", scene.home.key, request);
    expect(fields?.map(({ location }) => location)).toEqual(["enabled"]);
    expect(await readSettings(scene, keyId)).toEqual(before);
  });

  everyProtocol("an empty update returns the key, and changes nothing", async (scene) => {
    const { keyId } = await createFullKey(scene);
    const before = await readSettings(scene, keyId);
    await scene.clock.advance(1000);
    const after = await scene.ok("updateKey", scene.home.key, { keyId });
    expect(without(after, "updatedAt")).toEqual(without(before, "updatedAt"));
  });

  everyProtocol("an empty update is no change: updatedAt stays, and there is no audit event", async (scene) => {
    const { keyId } = await createFullKey(scene);
    const { updatedAt } = await readSettings(scene, keyId);
    await scene.clock.advance(1000);
    expect(await scene.ok("updateKey", scene.home.key, { keyId })).toMatchObject({ updatedAt });
    const events = await scene.ok("listAuditEvents", scene.home.key, { resourceId: keyId });
    expect(events.map(({ type }) => type)).toEqual(["key.create"]);
  });

  // Some clients send the members of an object in a new order each time.
  everyProtocol("meta with its members in another order is no change: there is no audit event", async (scene) => {
    const { keyId } = await scene.ok("createKey", scene.home.key, { meta: { team: 7, plan: "pro" } });
    await scene.ok("updateKey", scene.home.key, { keyId, meta: { plan: "pro", team: 7 } });
    const events = await scene.ok("listAuditEvents", scene.home.key, { resourceId: keyId });
    expect(events.map(({ type }) => type)).toEqual(["key.create"]);
  });

  everyProtocol("an update changes no other key", async (scene) => {
    const { keyId } = await createFullKey(scene);
    await createFullKey(scene);
    const before = await readAllSettings(scene);
    const after = settingsOf(await scene.ok("updateKey", scene.home.key, { keyId, name: "second" }));
    expect(await readAllSettings(scene)).toEqual(before.map((entry) => (entry.keyId === keyId ? after : entry)));
  });

  everyProtocol("an update never returns or changes the secret", async (scene) => {
    const { keyId, key } = await createFullKey(scene);
    const after = await scene.ok("updateKey", scene.home.key, { keyId, name: "second" });
    expect(JSON.stringify(after)).not.toContain(key.slice("acme_live_".length + 5));
    expect(await scene.ok("whoami", scene.home.key, { key })).toMatchObject({ keyId, name: "second" });
  });
});
