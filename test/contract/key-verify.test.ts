import { describe, expect } from "vitest";
import { allProtocols, openContract } from "./cases.js";
import { createFullKey, readSettings } from "./key-settings.js";
import type { Scene } from "./scene.js";

const { everyProtocol } = openContract(allProtocols);

/** Says that the secret is not good, and nothing else about it. */
async function expectRefusal({ ok, home }: Scene, code: string, request: Record<string, unknown>): Promise<void> {
  const verdict = await ok("verifyKey", home.key, request);
  expect({ permissions: [], ...verdict }).toEqual({ valid: false, code, permissions: [] });
}

/** Texts that are no secret of a living key of the workspace. */
const unknown: Record<string, (scene: Scene) => Promise<string>> = {
  "a text that is no secret": async () => "hello",
  "a single space": async () => " ",
  "a secret with its last letter changed": async ({ home: { key } }) =>
    key.slice(0, -1) + (key.endsWith("A") ? "B" : "A"),
  "a secret with a space behind it": async ({ home }) => `${home.key} `,
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
  everyProtocol("a good key is VALID, with its settings and identity as getKey has them", async (scene) => {
    const { keyId, key } = await createFullKey(scene);
    const { name, meta, expires, enabled, permissions, identity } = await readSettings(scene, keyId);
    const verdict = await scene.ok("verifyKey", scene.home.key, { key });
    const settings = { keyId, name, meta, expires, enabled, permissions, identity };
    expect(verdict).toEqual({ valid: true, code: "VALID", ...settings });
    expect(verdict).toMatchObject({ name: "first name", enabled: true, identity: { externalId: "user_1" } });
  });

  everyProtocol("a key with nothing is VALID, and what is unset is left out", async (scene) => {
    const { keyId, key } = await scene.ok("createKey", scene.home.key);
    const verdict = await scene.ok("verifyKey", scene.home.key, { key });
    expect(verdict).toEqual({ valid: true, code: "VALID", keyId, enabled: true, permissions: [] });
  });

  for (const [what, secretOf] of Object.entries(unknown)) {
    everyProtocol(`${what} is NOT_FOUND for verifyKey and does not exist for whoami`, async (scene) => {
      const key = await secretOf(scene);
      await expectRefusal(scene, "NOT_FOUND", { key });
      await expectRefusal(scene, "NOT_FOUND", { key, permissions: "documents.read" });
      await scene.refused("data/key_not_found", "whoami", scene.home.key, { key });
    });
  }

  everyProtocol("a disabled key is DISABLED", async (scene) => {
    const { key } = await createFullKey(scene, { enabled: false });
    await expectRefusal(scene, "DISABLED", { key });
  });

  everyProtocol("an expired key is EXPIRED", async (scene) => {
    await expectRefusal(scene, "EXPIRED", { key: await scene.newExpiredKey() });
  });

  everyProtocol("a key that lacks what is asked for has INSUFFICIENT_PERMISSIONS", async (scene) => {
    const { key } = await createFullKey(scene, { permissions: ["documents.read"] });
    await expectRefusal(scene, "INSUFFICIENT_PERMISSIONS", { key, permissions: "documents.write" });
    expect(await scene.ok("verifyKey", scene.home.key, { key, permissions: "documents.read" })).toMatchObject({
      valid: true,
      keyId: expect.any(String),
    });
  });

  everyProtocol("disabled speaks before expired, and expired before insufficient permissions", async (scene) => {
    const request = { permissions: "documents.read" };
    const both = await scene.newExpiredKey({ enabled: false });
    await expectRefusal(scene, "DISABLED", { key: both, ...request });
    const late = await scene.newExpiredKey();
    await expectRefusal(scene, "EXPIRED", { key: late, ...request });
  });

  everyProtocol("the caller's scope to verify says nothing about the key's, nor the key's about it", async (scene) => {
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

  everyProtocol("no answer ever holds the secret", async (scene) => {
    const { key } = await createFullKey(scene);
    const verdict = await scene.ok("verifyKey", scene.home.key, { key });
    const found = await scene.ok("whoami", scene.home.key, { key });
    for (const answer of [verdict, found]) expect(JSON.stringify(answer)).not.toContain(key.slice(-34));
  });
});

describe("reading a key", () => {
  everyProtocol("getKey, whoami and listKeys tell the same of a key", async (scene) => {
    const { keyId, key } = await createFullKey(scene);
    const found = await scene.ok("getKey", scene.home.key, { keyId });
    expect(found).toMatchObject({ keyId, workspaceId: scene.home.workspaceId, start: key.slice(0, 14) });
    expect(await scene.ok("whoami", scene.home.key, { key })).toEqual(found);
    expect(await scene.ok("listKeys", scene.home.key, { externalId: "user_1" })).toEqual([found]);
  });

  everyProtocol("whoami finds a key in whatever state it is", async (scene) => {
    const disabled = await createFullKey(scene, { enabled: false });
    expect(await scene.ok("whoami", scene.home.key, { key: disabled.key })).toMatchObject({ enabled: false });
    const key = await scene.newExpiredKey();
    expect((await scene.ok("whoami", scene.home.key, { key })).expires).toBeLessThanOrEqual(scene.clock.now());
  });

  everyProtocol("whoami tells a key about itself, and another caller about it", async (scene) => {
    const { keyId, key } = await scene.ok("createKey", scene.home.key, { scopes: ["keys.read"] });
    expect(await scene.ok("whoami", key, { key })).toMatchObject({ keyId });
    expect(await scene.ok("whoami", key, { key: scene.home.key })).toMatchObject({ keyId: scene.home.keyId });
  });
});
