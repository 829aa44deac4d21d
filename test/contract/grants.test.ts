import { describe, expect } from "vitest";
import type { CallRequest } from "../support/clients/protocol-client.js";
import { openContract } from "./cases.js";
import { day, readAllSettings, readSettings } from "./key-settings.js";
import type { Scene } from "./scene.js";

const { everyProtocol } = openContract();
const code = "authorization/insufficient_permissions";

/** The scopes that a key with these scopes may grant, and those that it may not. */
const grants: { holds: string[]; may: string[][]; mayNot: string[][] }[] = [
  {
    holds: ["*"],
    may: [["*"], ["keys.*"], ["keys.read"], ["a.b.c.*", "keys.read"], []],
    mayNot: [],
  },
  {
    holds: ["keys.*"],
    may: [["keys.read"], ["keys.*"], ["keys.create", "keys.anything"], []],
    mayNot: [["*"], ["identities.read"], ["keysx.read"], ["Keys.read"], ["keys.read", "identities.*"]],
  },
  {
    holds: ["keys.create", "keys.update", "keys.delete", "identities.read"],
    may: [["identities.read"], ["keys.create"], ["identities.read", "keys.create"], []],
    mayNot: [
      ["*"],
      ["keys.*"],
      ["identities.*"],
      ["identities"],
      ["identities.read.all"],
      ["identities.update"],
      ["keys.read"],
    ],
  },
];

describe.each(grants)("a key with the scopes $holds", ({ holds, may, mayNot }) => {
  for (const scopes of may) {
    const what = scopes.join(" and ") || "none";
    everyProtocol(`may grant ${what}, and update, reroll and delete a key with it`, async (scene) => {
      const caller = await scene.ok("createKey", scene.home.key, { scopes: holds });
      const { keyId } = await scene.ok("createKey", caller.key, { scopes });
      expect(await readSettings(scene, keyId)).toMatchObject({ scopes });
      const rerolled = await scene.ok("rerollKey", caller.key, { keyId });
      expect(await readSettings(scene, rerolled.keyId)).toMatchObject({ scopes });
      for (const before of [[], holds]) {
        const existing = await scene.ok("createKey", scene.home.key, { scopes: before });
        const update = { keyId: existing.keyId, scopes };
        expect(await scene.ok("updateKey", caller.key, update)).toMatchObject({ scopes });
        await scene.ok("updateKey", caller.key, { keyId: existing.keyId, scopes: null, enabled: false });
        await scene.ok("deleteKey", caller.key, { keyId: existing.keyId });
      }
    });
  }

  for (const scopes of mayNot) {
    const what = scopes.join(" and ");
    everyProtocol(`may not grant ${what} to a new key, another key or itself`, async (scene) => {
      const caller = await scene.ok("createKey", scene.home.key, { scopes: holds });
      const weaker = await scene.ok("createKey", scene.home.key, { scopes: ["keys.create"] });
      const before = await readAllSettings(scene);
      const grant = { scopes, name: "granted", externalId: "user_1" };
      const { detail } = await scene.refused(code, "createKey", caller.key, grant);
      expect(detail).toMatch(/can grant only scopes that it has, and this API key does not have `[^`]+`/);
      for (const { keyId } of [weaker, caller]) {
        await scene.refused(code, "updateKey", caller.key, { keyId, ...grant });
      }
      expect(await readAllSettings(scene)).toEqual(before);
      expect(await scene.ok("listIdentities", scene.home.key)).toEqual([]);
    });

    everyProtocol(
      `may not update, reroll or delete a key with ${what}, and the error does not name the missing scope`,
      async (scene) => {
        const { ok, refused, home, clock } = scene;
        const caller = await ok("createKey", home.key, { scopes: holds });
        const enabled = await ok("createKey", home.key, { scopes, expires: clock.now() + 30 * day });
        const disabled = await ok("createKey", home.key, { scopes, enabled: false });
        const before = await readAllSettings(scene);
        const details = new Set<string>();
        for (const { keyId } of [enabled, disabled]) {
          for (const change of changesOf(clock.now())) {
            details.add((await refused(code, "updateKey", caller.key, { keyId, ...change })).detail);
          }
          for (const expiration of [0, day]) {
            details.add((await refused(code, "rerollKey", caller.key, { keyId, expiration })).detail);
          }
          details.add((await refused(code, "deleteKey", caller.key, { keyId })).detail);
        }
        expect([...details]).toEqual([expect.stringMatching(/only keys whose scopes it has itself.*Use a key that/)]);
        await refused("data/key_not_found", "updateKey", caller.key, { keyId: `${enabled.keyId}x`, enabled: false });
        expect(await readAllSettings(scene)).toEqual(before);
        expect(await ok("verifyKey", home.key, { key: enabled.key })).toMatchObject({ code: "VALID" });
      },
    );
  }
});

/** Every kind of change: those that revoke a key, that re-enable it, and others. */
function changesOf(now: number): CallRequest[] {
  return [
    { enabled: false },
    { enabled: true },
    { scopes: [] },
    { scopes: ["keys.create"] },
    { expires: now + day },
    { expires: now + 60 * day },
    { expires: null },
    { name: "another" },
    { permissions: [] },
    { meta: {} },
    { externalId: "user_1" },
  ];
}

describe("privilege escalation: the key with every scope", () => {
  /** A key with the scopes to revoke others, and no more. */
  const attackers = ["keys.update", "keys.delete", "keys.create"];

  everyProtocol("cannot be revoked by a key that has only the scopes to revoke", async (scene) => {
    const { ok, refused, home, clock } = scene;
    const before = (await readAllSettings(scene)).filter(({ keyId }) => keyId === home.keyId);
    for (const scopes of [...attackers.map((scope) => [scope]), attackers, ["keys.*"]]) {
      const { key } = await ok("createKey", home.key, { scopes });
      const { keyId } = home;
      const ends: [operation: "updateKey" | "deleteKey" | "rerollKey", request: CallRequest][] = [
        ["updateKey", { keyId, enabled: false }],
        ["updateKey", { keyId, scopes: null }],
        ["updateKey", { keyId, expires: clock.now() + 1_000 }],
        ["deleteKey", { keyId }],
        ["rerollKey", { keyId }],
      ];
      for (const [operation, request] of ends) await refused(code, operation, key, request);
    }
    expect((await readAllSettings(scene)).filter(({ keyId }) => keyId === home.keyId)).toEqual(before);
  });

  everyProtocol("can be revoked by another key with every scope", async (scene) => {
    const spare = await scene.ok("createKey", scene.home.key, { scopes: ["*"] });
    await scene.ok("updateKey", spare.key, { keyId: scene.home.keyId, enabled: false });
    await scene.refused("authorization/key_disabled", "listKeys", scene.home.key);
    await scene.ok("deleteKey", spare.key, { keyId: scene.home.keyId });
  });
});

describe("a key that changes itself", () => {
  /** A key with these scopes. */
  const make = ({ ok, home }: Scene, scopes: string[], more = {}) => ok("createKey", home.key, { scopes, ...more });

  everyProtocol("can disable itself", async (scene) => {
    const { keyId, key } = await make(scene, ["keys.update"]);
    expect(await scene.ok("updateKey", key, { keyId, enabled: false })).toMatchObject({ enabled: false });
    await scene.refused("authorization/key_disabled", "updateKey", key, { keyId, enabled: true });
  });

  everyProtocol("can delete itself", async (scene) => {
    const { keyId, key } = await make(scene, ["keys.delete"]);
    await scene.ok("deleteKey", key, { keyId });
    await scene.refused("authentication/key_not_found", "deleteKey", key, { keyId });
  });

  everyProtocol("can expire earlier, and give up scopes", async (scene) => {
    const { keyId, key } = await make(scene, ["keys.update", "keys.create"]);
    for (const days of [30, 20]) {
      const expires = scene.clock.now() + days * day;
      expect(await scene.ok("updateKey", key, { keyId, expires, enabled: true })).toMatchObject({ expires });
    }
    await scene.ok("updateKey", key, { keyId, scopes: ["keys.update"] });
    await scene.refused(code, "createKey", key);
  });

  everyProtocol("cannot regain a scope that it gave up", async (scene) => {
    const { keyId, key } = await make(scene, ["keys.update", "keys.create"]);
    await scene.ok("updateKey", key, { keyId, scopes: ["keys.update"] });
    await scene.refused(code, "updateKey", key, { keyId, scopes: ["keys.update", "keys.create"] });
    await scene.refused(code, "createKey", key);
  });

  everyProtocol("cannot regain its former scopes by a reroll", async (scene) => {
    const { keyId, key } = await make(scene, ["keys.create", "*"]);
    await scene.ok("updateKey", scene.home.key, { keyId, scopes: ["keys.create"] });
    const successor = await scene.ok("rerollKey", key, { keyId });
    expect(await readSettings(scene, successor.keyId)).toMatchObject({ scopes: ["keys.create"] });
  });

  for (const scopes of [["keys.update"], ["keys.*"], ["*"]]) {
    everyProtocol(`with ${scopes} can neither clear nor postpone its own expiry`, async (scene) => {
      const expires = scene.clock.now() + day;
      const { keyId, key } = await make(scene, scopes, { expires });
      for (const change of [
        { expires: null },
        { expires: expires + 1 },
        { expires: expires + day, name: "longer" },
        { expires: null, scopes: [] },
      ]) {
        const { detail } = await scene.refused(code, "updateKey", key, { keyId, ...change });
        expect(detail).toMatch(/cannot enable itself, extend or remove its own expiry.*Use another key/);
      }
      expect(await readSettings(scene, keyId)).toMatchObject({ expires, scopes });
      await scene.clock.advance(day);
      await scene.refused("authentication/key_expired", "listKeys", key);
    });
  }

  everyProtocol("can change its other settings while its expiry stays", async (scene) => {
    const expires = scene.clock.now() + day;
    const { keyId, key } = await make(scene, ["keys.update"], { expires });
    const changed = await scene.ok("updateKey", key, { keyId, name: "renamed", expires, permissions: ["*"] });
    expect(changed).toMatchObject({ name: "renamed", expires, permissions: ["*"] });
  });
});

everyProtocol("cannot move to an identity that does not exist: identity_not_found", async (scene) => {
  const { keyId } = await scene.ok("createKey", scene.home.key, { enabled: false });
  const revival = { keyId, enabled: true, identityId: "id_nobody" };
  await scene.refused("data/identity_not_found", "updateKey", scene.home.key, revival);
  expect(await readSettings(scene, keyId)).toMatchObject({ enabled: false });
});
