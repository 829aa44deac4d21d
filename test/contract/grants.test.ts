import { describe, expect } from "vitest";
import { openContract } from "./cases.js";
import type { CallRequest } from "./door.js";
import { day, readAllSettings, readSettings } from "./key-settings.js";

const { everyDoor } = openContract();
const code = "authorization/insufficient_permissions";

/** What a key with these permissions, and those that it calls with, may hand out, and what not. */
const grants: { holds: string[]; may: string[][]; mayNot: string[][] }[] = [
  {
    holds: ["*"],
    may: [["*"], ["keys.*"], ["documents.read"], ["a.b.c.*", "keys.read"], []],
    mayNot: [],
  },
  {
    holds: ["keys.*"],
    may: [["keys.read"], ["keys.*"], ["keys.create", "keys.anything"], []],
    mayNot: [["*"], ["identities.read"], ["keysx.read"], ["Keys.read"], ["keys.read", "identities.*"]],
  },
  {
    holds: ["keys.create", "keys.update", "documents.read"],
    may: [["documents.read"], ["keys.create"], ["documents.read", "keys.create"], []],
    mayNot: [
      ["*"],
      ["keys.*"],
      ["documents.*"],
      ["documents"],
      ["documents.read.all"],
      ["documents.write"],
      ["keys.read"],
    ],
  },
];

describe.each(grants)("a key that holds $holds", ({ holds, may, mayNot }) => {
  for (const permissions of may) {
    const what = permissions.join(" and ") || "nothing";
    everyDoor(`may grant ${what} to a new key and an existing one, and reroll a key that holds it`, async (scene) => {
      const caller = await scene.ok("createKey", scene.home.key, { permissions: holds });
      const { keyId } = await scene.ok("createKey", caller.key, { permissions });
      expect(await readSettings(scene, keyId)).toMatchObject({ permissions });
      const rerolled = await scene.ok("rerollKey", caller.key, { keyId });
      expect(await readSettings(scene, rerolled.keyId)).toMatchObject({ permissions });
      for (const before of [[], ["*"]]) {
        const existing = await scene.ok("createKey", scene.home.key, { permissions: before });
        const update = { keyId: existing.keyId, permissions };
        expect(await scene.ok("updateKey", caller.key, update)).toMatchObject({ permissions });
      }
    });
  }

  for (const permissions of mayNot) {
    const what = permissions.join(" and ");
    everyDoor(
      `may not grant ${what} to a new key, another or itself, nor reroll a key that holds it`,
      async (scene) => {
        const caller = await scene.ok("createKey", scene.home.key, { permissions: holds });
        const weaker = await scene.ok("createKey", scene.home.key, { permissions: ["documents.read"] });
        const stronger = await scene.ok("createKey", scene.home.key, { permissions });
        const before = await readAllSettings(scene);
        const grant = { permissions, name: "granted", externalId: "user_1" };
        await scene.refused(code, "createKey", caller.key, grant);
        for (const { keyId } of [weaker, stronger, caller]) {
          await scene.refused(code, "updateKey", caller.key, { keyId, ...grant });
        }
        for (const expiration of [0, 60_000]) {
          await scene.refused(code, "rerollKey", caller.key, { keyId: stronger.keyId, expiration });
        }
        expect(await readAllSettings(scene)).toEqual(before);
        expect(await scene.ok("listIdentities", scene.home.key)).toEqual([]);
        expect(await scene.ok("verifyKey", scene.home.key, { key: stronger.key })).toMatchObject({ code: "VALID" });
      },
    );
  }
});

/** Ways to let a key live for more than a day. */
function longer(now: number): CallRequest[] {
  return [{ expires: null }, { expires: now + 2 * day }, { expires: now + 2 * day, enabled: true }];
}

describe("no way around", () => {
  everyDoor("a key that gave up a permission cannot take it back", async (scene) => {
    const permissions = ["keys.update", "keys.create"];
    const { keyId, key } = await scene.ok("createKey", scene.home.key, { permissions });
    await scene.ok("updateKey", key, { keyId, permissions: ["keys.update"] });
    await scene.refused(code, "updateKey", key, { keyId, permissions });
    await scene.refused(code, "createKey", key);
  });

  everyDoor("a key may change a more powerful one in all but its permissions", async (scene) => {
    const { key } = await scene.ok("createKey", scene.home.key, { permissions: ["keys.update"] });
    const { keyId } = await scene.ok("createKey", scene.home.key, { permissions: ["*"] });
    const changed = await scene.ok("updateKey", key, { keyId, name: "suspicious", enabled: false });
    expect(changed).toMatchObject({ name: "suspicious", enabled: false, permissions: ["*"] });
  });

  everyDoor("a key may shorten the life of a more powerful one, and end it", async (scene) => {
    const { key } = await scene.ok("createKey", scene.home.key, { permissions: ["keys.update"] });
    const { keyId } = await scene.ok("createKey", scene.home.key, { permissions: ["*"] });
    for (const days of [30, 20]) {
      const expires = scene.clock.now() + days * day;
      const shorter = { keyId, expires, enabled: true };
      expect(await scene.ok("updateKey", key, shorter)).toMatchObject({ expires, enabled: true });
      // As a client does that got no answer.
      expect(await scene.ok("updateKey", key, shorter)).toMatchObject({ expires });
    }
    await scene.ok("updateKey", key, { keyId, enabled: false });
  });

  for (const [what, request, end] of [
    ["enables", {}, { enabled: false }],
    ["takes the expiry off", { expires: day }, {}],
    ["lets a rerolled one live on", {}, undefined],
  ] as const) {
    everyDoor(`a key that ${what} needs what the other key holds, and is not told what that is`, async (scene) => {
      const { ok, home, clock } = scene;
      const expires = "expires" in request ? { expires: clock.now() + request.expires } : {};
      const { keyId, key } = await ok("createKey", home.key, { permissions: ["*"], ...expires });
      await (end ? ok("updateKey", home.key, { keyId, ...end }) : ok("rerollKey", home.key, { keyId }));
      const weak = await ok("createKey", home.key, { permissions: ["keys.update", "documents.read"] });
      const before = await readAllSettings(scene);
      const revivals: CallRequest[] = end?.enabled === false ? [{ enabled: true }] : longer(clock.now());
      for (const revival of revivals) {
        const more = { ...revival, name: "revived", externalId: "user_1" };
        const { detail } = await scene.refused(code, "updateKey", weak.key, { keyId, ...more });
        expect(detail).toBe("A key can reroll, enable or prolong only keys that hold nothing it does not hold itself.");
        await scene.refused("data/key_not_found", "updateKey", weak.key, { keyId: `${keyId}x`, ...more });
      }
      expect(await readAllSettings(scene)).toEqual(before);
      expect(await ok("listIdentities", home.key)).toEqual([]);
      // With no more than it holds itself, it may.
      const [revival = {}] = revivals;
      await ok("updateKey", weak.key, { keyId, ...revival, permissions: ["documents.read"] });
      expect(await ok("verifyKey", home.key, { key })).toMatchObject({
        code: "VALID",
        permissions: ["documents.read"],
      });
      await ok("updateKey", home.key, { keyId, enabled: false });
      await ok("updateKey", weak.key, { keyId, enabled: true });
    });
  }

  everyDoor("a revival is refused with identity_not_found where its owner is nobody", async (scene) => {
    const { keyId } = await scene.ok("createKey", scene.home.key, { enabled: false });
    const revival = { keyId, enabled: true, identityId: "id_nobody" };
    await scene.refused("data/identity_not_found", "updateKey", scene.home.key, revival);
    expect(await readSettings(scene, keyId)).toMatchObject({ enabled: false });
  });

  everyDoor("a key that has lost a permission cannot reroll itself to how it was", async (scene) => {
    const { keyId, key } = await scene.ok("createKey", scene.home.key, { permissions: ["keys.create", "*"] });
    await scene.ok("updateKey", scene.home.key, { keyId, permissions: ["keys.create"] });
    const successor = await scene.ok("rerollKey", key, { keyId });
    expect(await readSettings(scene, successor.keyId)).toMatchObject({ permissions: ["keys.create"] });
  });
});
