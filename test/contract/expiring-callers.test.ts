import { describe, expect } from "vitest";
import type { CallRequest } from "../support/clients/protocol-client.js";
import { openContract } from "./cases.js";
import { day, readAllSettings, readSettings } from "./key-settings.js";
import type { Scene } from "./scene.js";

const { everyProtocol } = openContract();
const code = "authorization/insufficient_permissions";

/** A caller that expires in ten days, with the scopes it needs to create another key. */
async function expiringCaller({ ok, home, clock }: Scene, scopes = ["*"]) {
  const expires = clock.now() + 10 * day;
  return { ...(await ok("createKey", home.key, { scopes, expires })), expires };
}

/** Expiries later than this one; no expiry is the latest. */
function laterThan(expires: number): CallRequest[] {
  return [{}, { expires: expires + 1 }, { expires: expires + day }];
}

describe("privilege escalation by expiry: a key that expires", () => {
  for (const scopes of [["*"], ["keys.*"], ["keys.create"]]) {
    everyProtocol(`cannot create a key with the scopes ${scopes} that expires later`, async (scene) => {
      const caller = await expiringCaller(scene);
      const before = await readAllSettings(scene);
      for (const end of laterThan(caller.expires)) {
        for (const more of [{}, { enabled: false }]) {
          const request = { scopes, externalId: "user_1", ...end, ...more };
          const { detail } = await scene.refused(code, "createKey", caller.key, request);
          expect(detail).toContain(`expires at ${new Date(caller.expires).toISOString()}`);
          expect(detail).toMatch(
            /Set an expiry no later than this one, give that key no scopes, or use a key that expires later/,
          );
        }
      }
      expect(await readAllSettings(scene)).toEqual(before);
      expect(await scene.ok("listIdentities", scene.home.key)).toEqual([]);
    });
  }

  everyProtocol("can create a key with scopes that expires no later", async (scene) => {
    const caller = await expiringCaller(scene);
    for (const expires of [caller.expires, caller.expires - day]) {
      const { keyId } = await scene.ok("createKey", caller.key, { scopes: ["*"], expires });
      expect(await readSettings(scene, keyId)).toMatchObject({ scopes: ["*"], expires });
    }
  });

  everyProtocol(
    "can create a key without scopes that never expires, and postpone its expiry, enable and reroll it",
    async (scene) => {
      const { ok, clock } = scene;
      const caller = await expiringCaller(scene);
      const permissions = ["*", "keys.*"];
      const { keyId } = await ok("createKey", caller.key, { permissions, enabled: false, expires: clock.now() + day });
      await ok("updateKey", caller.key, { keyId, expires: null, enabled: true });
      const successor = await ok("rerollKey", caller.key, { keyId });
      expect(await readSettings(scene, successor.keyId)).not.toHaveProperty("expires");
    },
  );

  everyProtocol("cannot grant scopes to a key that expires later", async (scene) => {
    const { ok, refused, home } = scene;
    const caller = await expiringCaller(scene);
    const bare = await ok("createKey", caller.key);
    const weak = await ok("createKey", home.key, { scopes: ["keys.read"] });
    for (const { keyId } of [bare, weak]) {
      await refused(code, "updateKey", caller.key, { keyId, scopes: ["*"] });
      await refused(code, "updateKey", caller.key, { keyId, scopes: ["keys.read", "keys.update"] });
      await refused(code, "updateKey", caller.key, { keyId, scopes: ["*"], expires: caller.expires + 1 });
    }
    // It can, if the key expires no later.
    const granted = await ok("updateKey", caller.key, {
      keyId: bare.keyId,
      scopes: ["*"],
      expires: caller.expires,
    });
    expect(granted).toMatchObject({ scopes: ["*"], expires: caller.expires });
  });

  everyProtocol("cannot postpone the expiry of a key with scopes beyond its own expiry", async (scene) => {
    const { ok, refused, home, clock } = scene;
    const caller = await expiringCaller(scene);
    const { keyId } = await ok("createKey", home.key, { scopes: ["keys.read"], expires: clock.now() + day });
    for (const expires of [null, caller.expires + 1, caller.expires + day]) {
      await refused(code, "updateKey", caller.key, { keyId, expires });
    }
    expect(await ok("updateKey", caller.key, { keyId, expires: caller.expires })).toMatchObject({
      expires: caller.expires,
    });
    // It can, if the same update removes the scopes: the key can then call nothing.
    expect(await ok("updateKey", caller.key, { keyId, expires: null, scopes: [] })).not.toHaveProperty("expires");
  });

  everyProtocol("cannot do so by way of an expiry in a year that programs read as another one", async (scene) => {
    const { ok, refused, home } = scene;
    const caller = await expiringCaller(scene);
    const { keyId } = await ok("createKey", home.key, { scopes: ["keys.read"], expires: caller.expires });
    for (const year of [1, 49, 50, 99, 100, 1850, 1969]) {
      const expires = new Date(0).setUTCFullYear(year);
      expect(await ok("updateKey", caller.key, { keyId, expires })).toMatchObject({ expires });
      expect(await readSettings(scene, keyId)).toMatchObject({ expires });
      await refused(code, "updateKey", caller.key, { keyId, expires: caller.expires + 1 });
    }
  });

  everyProtocol("cannot enable a key with scopes that expires later", async (scene) => {
    const { ok, refused, home } = scene;
    const caller = await expiringCaller(scene);
    const { keyId } = await ok("createKey", home.key, { scopes: ["keys.read"], enabled: false });
    await refused(code, "updateKey", caller.key, { keyId, enabled: true });
    const revived = { keyId, enabled: true, expires: caller.expires };
    expect(await ok("updateKey", caller.key, revived)).toMatchObject({ enabled: true, expires: caller.expires });
  });

  everyProtocol("cannot reroll a key with scopes whose successor would expire later", async (scene) => {
    const { ok, refused, home, clock } = scene;
    const caller = await expiringCaller(scene);
    const endless = await ok("createKey", home.key, { scopes: ["keys.read"] });
    const longer = await ok("createKey", home.key, { scopes: ["keys.read"], expires: caller.expires + 1 });
    // An earlier reroll expired it early, but its successor gets the configured expiry.
    const shortened = await ok("createKey", home.key, { scopes: ["keys.read"] });
    await ok("rerollKey", home.key, { keyId: shortened.keyId, expiration: day });
    const before = await readAllSettings(scene);
    for (const { keyId } of [endless, longer, shortened]) {
      for (const expiration of [0, day]) await refused(code, "rerollKey", caller.key, { keyId, expiration });
    }
    expect(await readAllSettings(scene)).toEqual(before);
    const shorter = await ok("createKey", home.key, { scopes: ["keys.read"], expires: clock.now() + day });
    await ok("rerollKey", caller.key, { keyId: shorter.keyId });
  });

  everyProtocol("rerolls itself to a key with the same expiry", async (scene) => {
    const caller = await expiringCaller(scene, ["keys.create"]);
    const successor = await scene.ok("rerollKey", caller.key, { keyId: caller.keyId });
    expect(await readSettings(scene, successor.keyId)).toMatchObject({ expires: caller.expires });
  });

  everyProtocol("that was rerolled cannot create another successor during its grace period", async (scene) => {
    const { ok, refused, home } = scene;
    const { keyId, key } = await ok("createKey", home.key, { scopes: ["keys.create"] });
    await ok("rerollKey", key, { keyId, expiration: day });
    const before = await readAllSettings(scene);
    await refused(code, "rerollKey", key, { keyId });
    await refused(code, "createKey", key, { scopes: ["keys.create"] });
    expect(await readAllSettings(scene)).toEqual(before);
  });

  everyProtocol("can still expire and rename keys that expire later, and remove their scopes", async (scene) => {
    const { ok, home } = scene;
    const caller = await expiringCaller(scene);
    const { keyId } = await ok("createKey", home.key, { scopes: ["keys.read", "keys.create"] });
    await ok("updateKey", caller.key, { keyId, name: "suspicious", scopes: ["keys.read"] });
    await ok("updateKey", caller.key, { keyId, expires: caller.expires + day });
    await ok("updateKey", caller.key, { keyId, enabled: false });
    await ok("deleteKey", caller.key, { keyId });
  });
});
