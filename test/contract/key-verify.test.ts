import { describe, expect } from "vitest";
import { allProtocols, openContract } from "./cases.js";
import { createFullKey, readSettings } from "./key-settings.js";
import type { Scene } from "./scene.js";

const { everyProtocol } = openContract(allProtocols);

/** Checks that a verification fails with this code. It returns the key unless there is none. */
async function expectRefusal({ ok, home }: Scene, code: string, request: Record<string, unknown>): Promise<void> {
  const result = await ok("verifyKey", home.key, request);
  if (code === "NOT_FOUND") expect(result).toEqual({ valid: false, code, ...noLists });
  else expect(result).toMatchObject({ valid: false, code, keyId: expect.any(String), enabled: expect.any(Boolean) });
}

const noLists = { permissions: [], roles: [], ratelimits: [] };

/** Texts that are not the secret of an existing key of the workspace. */
const unknown: Record<string, (scene: Scene) => Promise<string>> = {
  "a text that is not a secret": async () => "hello",
  "a single space": async () => " ",
  "a secret with its last letter changed": async ({ home: { key } }) =>
    key.slice(0, -1) + (key.endsWith("A") ? "B" : "A"),
  "a secret with a space after it": async ({ home }) => `${home.key} `,
  "a secret as a bearer header": async ({ home }) => `Bearer ${home.key}`,
  "a key's id": async ({ home }) => home.keyId,
  "255 characters": async () => "x".repeat(255),
  "another workspace's secret": async ({ newWorkspace }) => (await newWorkspace()).key,
  "a deleted key's secret": async (scene) => {
    const { keyId, key } = await createFullKey(scene);
    await scene.ok("deleteKey", scene.home.key, { keyId });
    return key;
  },
};

describe("verifying a key", () => {
  everyProtocol("a valid key is VALID, with its settings and identity as getKey returns them", async (scene) => {
    const { keyId, key } = await createFullKey(scene);
    const { name, meta, expires, enabled, permissions, roles, identity } = await readSettings(scene, keyId);
    const result = await scene.ok("verifyKey", scene.home.key, { key });
    const settings = { keyId, name, meta, expires, enabled, permissions, roles, identity };
    expect(result).toEqual({ valid: true, code: "VALID", ...settings, ratelimits: [] });
    expect(result).toMatchObject({ name: "first name", enabled: true, identity: { externalId: "user_1" } });
  });

  everyProtocol("a key without settings is VALID, and unset fields are left out", async (scene) => {
    const { keyId, key } = await scene.ok("createKey", scene.home.key);
    const result = await scene.ok("verifyKey", scene.home.key, { key });
    expect(result).toEqual({ valid: true, code: "VALID", keyId, enabled: true, ...noLists });
  });

  for (const [what, secretOf] of Object.entries(unknown)) {
    everyProtocol(`${what} is NOT_FOUND for verifyKey and key_not_found for whoami`, async (scene) => {
      const key = await secretOf(scene);
      await expectRefusal(scene, "NOT_FOUND", { key });
      await expectRefusal(scene, "NOT_FOUND", { key, permissions: "documents.read" });
      await scene.refused("data/key_not_found", "whoami", scene.home.key, { key });
    });
  }

  everyProtocol("a text of any length is NOT_FOUND", async (scene) => {
    for (const length of [512, 513, 10_000]) await expectRefusal(scene, "NOT_FOUND", { key: "x".repeat(length) });
  });

  everyProtocol("a disabled key is DISABLED, with its settings and identity", async (scene) => {
    const { keyId, key } = await createFullKey(scene, { enabled: false });
    const { name, meta, expires, enabled, permissions, roles, identity } = await readSettings(scene, keyId);
    const settings = { keyId, name, meta, expires, enabled, permissions, roles, identity };
    const result = await scene.ok("verifyKey", scene.home.key, { key });
    expect(result).toEqual({ valid: false, code: "DISABLED", ...settings, ratelimits: [] });
  });

  everyProtocol("an expired key is EXPIRED", async (scene) => {
    await expectRefusal(scene, "EXPIRED", { key: await scene.newExpiredKey() });
  });

  everyProtocol("a key without the requested permission is INSUFFICIENT_PERMISSIONS", async (scene) => {
    const { key } = await createFullKey(scene, { permissions: ["documents.read"] });
    await expectRefusal(scene, "INSUFFICIENT_PERMISSIONS", { key, permissions: "documents.write" });
    expect(await scene.ok("verifyKey", scene.home.key, { key, permissions: "documents.read" })).toMatchObject({
      valid: true,
      keyId: expect.any(String),
    });
  });

  everyProtocol("check order: DISABLED before EXPIRED, EXPIRED before INSUFFICIENT_PERMISSIONS", async (scene) => {
    const request = { permissions: "documents.read" };
    const both = await scene.newExpiredKey({ enabled: false });
    await expectRefusal(scene, "DISABLED", { key: both, ...request });
    const late = await scene.newExpiredKey();
    await expectRefusal(scene, "EXPIRED", { key: late, ...request });
  });

  everyProtocol("the caller's scopes do not affect the verified key's result, nor the reverse", async (scene) => {
    const verifier = await scene.ok("createKey", scene.home.key, {
      scopes: ["keys.verify"],
      permissions: ["documents.write"],
    });
    const { key } = await scene.ok("createKey", scene.home.key, { permissions: ["documents.read"] });
    const request = { key, permissions: "documents.read" };
    expect(await scene.ok("verifyKey", verifier.key, request)).toMatchObject({ code: "VALID" });
    const permissions = "documents.read";
    expect(await scene.ok("verifyKey", verifier.key, { key: verifier.key, permissions })).toMatchObject({
      code: "INSUFFICIENT_PERMISSIONS",
    });
  });

  everyProtocol("no response contains the secret", async (scene) => {
    const { key } = await createFullKey(scene);
    const result = await scene.ok("verifyKey", scene.home.key, { key });
    const found = await scene.ok("whoami", scene.home.key, { key });
    for (const response of [result, found]) expect(JSON.stringify(response)).not.toContain(key.slice(-34));
  });
});

describe("reading a key", () => {
  everyProtocol("getKey, whoami and listKeys return the same settings of a key", async (scene) => {
    const { keyId, key } = await createFullKey(scene);
    const found = await scene.ok("getKey", scene.home.key, { keyId });
    expect(found).toMatchObject({ keyId, workspaceId: scene.home.workspaceId, start: key.slice(0, 14) });
    expect(await scene.ok("whoami", scene.home.key, { key })).toEqual(found);
    expect(await scene.ok("listKeys", scene.home.key, { externalId: "user_1" })).toEqual([found]);
  });

  everyProtocol("whoami finds a key in any state", async (scene) => {
    const disabled = await createFullKey(scene, { enabled: false });
    expect(await scene.ok("whoami", scene.home.key, { key: disabled.key })).toMatchObject({ enabled: false });
    const key = await scene.newExpiredKey();
    expect((await scene.ok("whoami", scene.home.key, { key })).expires).toBeLessThanOrEqual(scene.clock.now());
  });

  everyProtocol("whoami returns a key to itself and to another caller", async (scene) => {
    const { keyId, key } = await scene.ok("createKey", scene.home.key, { scopes: ["keys.read"] });
    expect(await scene.ok("whoami", key, { key })).toMatchObject({ keyId });
    expect(await scene.ok("whoami", key, { key: scene.home.key })).toMatchObject({ keyId: scene.home.keyId });
  });
});
