import { describe, expect } from "vitest";
import { openContract } from "./cases.js";
import { createFullKey, day, readSettings } from "./key-settings.js";
import type { Scene } from "./scene.js";

const { everyProtocol } = openContract();
const expired = "authentication/key_expired";
const invalid = "application/invalid_input";

function newReader({ ok, home }: Scene, request = {}) {
  return ok("createKey", home.key, { scopes: ["keys.read"], ...request });
}

async function verificationCode({ ok, home }: Scene, key: string): Promise<string> {
  return (await ok("verifyKey", home.key, { key })).code;
}

describe("the new key of a reroll", () => {
  for (const [what, request] of [
    ["every setting", {}],
    ["every setting, and disabled", { enabled: false }],
    ["a prefix that ends with an underscore", { prefix: "a__" }],
    ["a prefix of 16 characters", { prefix: "sixteen_letters_" }],
    ["an empty meta and neither scopes nor permissions", { meta: {}, scopes: [], permissions: [] }],
  ] as const) {
    everyProtocol(`has the settings of the old key, and a new id and secret: ${what}`, async (scene) => {
      const old = await createFullKey(scene, request);
      const before = await readSettings(scene, old.keyId);
      await scene.clock.advance(1000);
      const rerolled = await scene.ok("rerollKey", scene.home.key, { keyId: old.keyId });
      expect(Object.keys(rerolled).sort()).toEqual(["key", "keyId"]);
      expect(rerolled.keyId).toMatch(/^key_[0-9a-z]{26}$/);
      expect([rerolled.keyId, rerolled.key]).not.toContain(old.keyId);
      expect(rerolled.key).not.toBe(old.key);
      const prefix = old.key.slice(0, -39);
      expect(rerolled.key).toMatch(new RegExp(`^${prefix}[0-9A-Za-z]{39}$`));
      const after = await readSettings(scene, rerolled.keyId);
      const { keyId } = rerolled;
      const start = rerolled.key.slice(0, prefix.length + 4);
      expect(after).toEqual({ ...before, keyId, start, createdAt: after.createdAt, updatedAt: after.createdAt });
      expect(after.createdAt).toBeGreaterThanOrEqual(before.createdAt + 1000);
    });
  }

  everyProtocol("leaves unset fields unset", async (scene) => {
    const old = await scene.ok("createKey", scene.home.key);
    const { keyId } = await scene.ok("rerollKey", scene.home.key, { keyId: old.keyId, expiration: day });
    const left = ["keyId", "workspaceId", "start", "enabled", "scopes", "permissions", "roles", "ratelimits"];
    left.push("createdAt", "updatedAt");
    expect(Object.keys(await readSettings(scene, keyId)).sort()).toEqual(left.sort());
  });

  everyProtocol("works at once, and can be rerolled itself", async (scene) => {
    const first = await newReader(scene);
    const second = await scene.ok("rerollKey", scene.home.key, { keyId: first.keyId });
    await scene.ok("listKeys", second.key);
    const third = await scene.ok("rerollKey", scene.home.key, { keyId: second.keyId });
    await scene.ok("listKeys", third.key);
    await scene.refused(expired, "listKeys", second.key);
  });

  everyProtocol("stays valid after the old key's grace period, until its own expiry", async (scene) => {
    const old = await newReader(scene, { expires: scene.clock.now() + 2 * day });
    const { key } = await scene.ok("rerollKey", scene.home.key, { keyId: old.keyId, expiration: day });
    await scene.clock.advance(day);
    await scene.ok("listKeys", key);
    await scene.clock.advance(day);
    await scene.refused(expired, "listKeys", key);
  });

  everyProtocol("is disabled if the old key was: a reroll re-enables no key", async (scene) => {
    const old = await newReader(scene, { enabled: false });
    const { key } = await scene.ok("rerollKey", scene.home.key, { keyId: old.keyId });
    await scene.refused("authorization/key_disabled", "listKeys", key);
  });
});

describe("a key that was already rerolled", () => {
  everyProtocol("can be rerolled again, as in a retry without a response, and each successor works", async (scene) => {
    const { keyId, key } = await newReader(scene);
    for (const expiration of [0, day, 0]) {
      const successor = await scene.ok("rerollKey", scene.home.key, { keyId, expiration });
      expect(await verificationCode(scene, successor.key)).toBe("VALID");
      expect(await readSettings(scene, successor.keyId)).not.toHaveProperty("expires");
    }
    await scene.refused(expired, "listKeys", key);
  });

  everyProtocol("passes on its configured expiry, not the one that the reroll set", async (scene) => {
    const expires = scene.clock.now() + 30 * day;
    const { keyId } = await newReader(scene, { expires });
    for (const expiration of [day, 0]) {
      const successor = await scene.ok("rerollKey", scene.home.key, { keyId, expiration });
      expect(await readSettings(scene, successor.keyId)).toMatchObject({ expires });
    }
  });

  everyProtocol("passes on an expiry that was set or cleared after the reroll", async (scene) => {
    const { keyId } = await newReader(scene, { expires: scene.clock.now() + day });
    for (const expires of [scene.clock.now() + 2 * day, null, scene.clock.now() + 3 * day]) {
      await scene.ok("rerollKey", scene.home.key, { keyId });
      await scene.ok("updateKey", scene.home.key, { keyId, expires });
      await scene.ok("updateKey", scene.home.key, { keyId, name: "other settings do not change it" });
      const successor = await scene.ok("rerollKey", scene.home.key, { keyId });
      expect((await readSettings(scene, successor.keyId)).expires ?? null).toBe(expires);
    }
  });
});

describe("an expired key", () => {
  everyProtocol(
    "cannot be rerolled until it is given another expiry, since its successor would be expired too",
    async (scene) => {
      const key = await scene.newExpiredKey();
      const { keyId } = await scene.ok("whoami", scene.home.key, { key });
      const { fields } = await scene.refused(invalid, "rerollKey", scene.home.key, { keyId, expiration: day });
      expect(fields).toEqual([
        { location: "keyId", message: expect.stringContaining("set a new `expires` with updateKey") },
      ]);
      expect(await scene.ok("listKeys", scene.home.key)).toHaveLength(2);
      await scene.ok("updateKey", scene.home.key, { keyId, expires: null });
      const successor = await scene.ok("rerollKey", scene.home.key, { keyId });
      expect(await verificationCode(scene, successor.key)).toBe("VALID");
      await scene.refused(expired, "listKeys", key);
    },
  );

  everyProtocol("cannot be rerolled, even if a reroll expired it first", async (scene) => {
    const { keyId } = await newReader(scene, { expires: scene.clock.now() + day });
    await scene.ok("rerollKey", scene.home.key, { keyId });
    await scene.clock.advance(day);
    await scene.refused(invalid, "rerollKey", scene.home.key, { keyId });
  });
});

describe("the old secret of a rerolled key", () => {
  for (const [how, request] of [
    ["no expiration", {}],
    ["the expiration 0", { expiration: 0 }],
  ] as const) {
    everyProtocol(`expires at once with ${how}`, async (scene) => {
      const { keyId, key } = await newReader(scene);
      await scene.ok("rerollKey", scene.home.key, { keyId, ...request });
      await scene.refused(expired, "listKeys", key);
      expect(await verificationCode(scene, key)).toBe("EXPIRED");
    });
  }

  everyProtocol(
    "stays expired if the database's clock is set back, unless it is given a later expiry",
    async (scene) => {
      const { keyId, key } = await newReader(scene);
      await scene.ok("rerollKey", scene.home.key, { keyId });
      await scene.clock.advance(-day);
      try {
        await scene.ok("updateKey", scene.home.key, { keyId, name: "renamed" });
        await scene.refused(expired, "listKeys", key);
        expect(await verificationCode(scene, key)).toBe("EXPIRED");
      } finally {
        await scene.clock.advance(day);
      }
      await scene.ok("updateKey", scene.home.key, { keyId, expires: scene.clock.now() + day });
      await scene.ok("listKeys", key);
    },
  );

  everyProtocol("stays valid until the grace period has passed, along with the new one", async (scene) => {
    const old = await newReader(scene);
    const { key } = await scene.ok("rerollKey", scene.home.key, { keyId: old.keyId, expiration: day });
    await scene.clock.advance(day - 60_000);
    for (const secret of [old.key, key]) {
      await scene.ok("listKeys", secret);
      expect(await verificationCode(scene, secret)).toBe("VALID");
    }
    await scene.clock.advance(60_000);
    await scene.refused(expired, "listKeys", old.key);
    await scene.ok("listKeys", key);
  });

  everyProtocol("never outlives its own expiry, however long the grace period", async (scene) => {
    const expires = scene.clock.now() + day;
    const { keyId, key } = await newReader(scene, { expires });
    await scene.ok("rerollKey", scene.home.key, { keyId, expiration: 365 * day });
    expect(await readSettings(scene, keyId)).toMatchObject({ expires });
    await scene.clock.advance(day);
    await scene.refused(expired, "listKeys", key);
  });

  everyProtocol("can be shortened by a second reroll, never extended", async (scene) => {
    const { keyId, key } = await newReader(scene);
    await scene.ok("rerollKey", scene.home.key, { keyId, expiration: day });
    await scene.ok("rerollKey", scene.home.key, { keyId, expiration: 30 * day });
    await scene.clock.advance(day);
    await scene.refused(expired, "listKeys", key);
  });

  everyProtocol("expires with the call in which the key rerolls itself", async (scene) => {
    const old = await scene.ok("createKey", scene.home.key, { scopes: ["keys.create"] });
    const { key } = await scene.ok("rerollKey", old.key, { keyId: old.keyId });
    await scene.refused(expired, "rerollKey", old.key, { keyId: old.keyId });
    await scene.ok("createKey", key);
  });
});

describe("a grace period", () => {
  for (const expiration of [-1, 365 * day + 1]) {
    everyProtocol(`of ${expiration} ms is refused and named, and the key is unchanged`, async (scene) => {
      const { keyId, key } = await newReader(scene);
      const { fields } = await scene.refused(invalid, "rerollKey", scene.home.key, { keyId, expiration });
      expect(fields?.map(({ location }) => location)).toEqual(["expiration"]);
      expect(await scene.ok("listKeys", key)).toHaveLength(2);
    });
  }
});
