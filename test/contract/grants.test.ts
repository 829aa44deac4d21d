import { describe, expect } from "vitest";
import { openContract } from "./cases.js";
import { readAllSettings, readSettings } from "./key-settings.js";

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

  everyDoor("a key that has lost a permission cannot reroll itself to how it was", async (scene) => {
    const { keyId, key } = await scene.ok("createKey", scene.home.key, { permissions: ["keys.create", "*"] });
    await scene.ok("updateKey", scene.home.key, { keyId, permissions: ["keys.create"] });
    const successor = await scene.ok("rerollKey", key, { keyId });
    expect(await readSettings(scene, successor.keyId)).toMatchObject({ permissions: ["keys.create"] });
  });
});
