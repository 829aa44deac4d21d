import { describe, expect, test } from "vitest";
import { allProtocols, openContract } from "./cases.js";
import { day } from "./key-settings.js";
import { openScene } from "./scene.js";

const contract = openContract();
const { everyProtocol } = contract;

describe("a change of a key takes effect at once", () => {
  everyProtocol("a key that is disabled is refused until it is enabled again", async (scene) => {
    const { keyId, key } = await scene.ok("createKey", scene.home.key, { scopes: ["keys.read"] });
    for (let round = 0; round < 3; round++) {
      await scene.ok("listKeys", key);
      await scene.ok("updateKey", scene.home.key, { keyId, enabled: false });
      await scene.refused("authorization/key_disabled", "listKeys", key);
      expect(await scene.ok("verifyKey", scene.home.key, { key })).toMatchObject({ code: "DISABLED" });
      await scene.ok("updateKey", scene.home.key, { keyId, enabled: true });
    }
  });

  everyProtocol(
    "a key that loses a scope is refused by operations that require it, and by no others",
    async (scene) => {
      const scopes = ["keys.read", "identities.read"];
      const { keyId, key } = await scene.ok("createKey", scene.home.key, { scopes });
      await scene.ok("listKeys", key);
      await scene.ok("updateKey", scene.home.key, { keyId, scopes: ["identities.read"] });
      await scene.refused("authorization/insufficient_permissions", "listKeys", key);
      await scene.ok("listIdentities", key);
    },
  );

  everyProtocol("a key that gains a scope can use it at once", async (scene) => {
    const { keyId, key } = await scene.ok("createKey", scene.home.key);
    await scene.refused("authorization/insufficient_permissions", "listKeys", key);
    await scene.ok("updateKey", scene.home.key, { keyId, scopes: ["keys.*"] });
    await scene.ok("listKeys", key);
  });

  everyProtocol("a key with a new expiry is valid until then, and again once the expiry is cleared", async (scene) => {
    const { keyId, key } = await scene.ok("createKey", scene.home.key, { scopes: ["keys.read"] });
    await scene.ok("updateKey", scene.home.key, { keyId, expires: scene.clock.now() + day });
    await scene.ok("listKeys", key);
    await scene.clock.advance(day);
    await scene.refused("authentication/key_expired", "listKeys", key);
    expect(await scene.ok("verifyKey", scene.home.key, { key })).toMatchObject({ code: "EXPIRED" });
    await scene.ok("updateKey", scene.home.key, { keyId, expires: null });
    await scene.ok("listKeys", key);
  });

  everyProtocol("a key whose expiry is postponed stays valid until the new expiry", async (scene) => {
    const expires = scene.clock.now() + day;
    const { keyId, key } = await scene.ok("createKey", scene.home.key, { scopes: ["keys.read"], expires });
    await scene.ok("updateKey", scene.home.key, { keyId, expires: expires + day });
    await scene.clock.advance(day);
    await scene.ok("listKeys", key);
    await scene.clock.advance(day);
    await scene.refused("authentication/key_expired", "listKeys", key);
  });

  everyProtocol("a key may disable itself, and is refused from then on", async (scene) => {
    const { keyId, key } = await scene.ok("createKey", scene.home.key, { scopes: ["keys.update"] });
    expect(await scene.ok("updateKey", key, { keyId, enabled: false })).toMatchObject({ enabled: false });
    await scene.refused("authorization/key_disabled", "updateKey", key, { keyId, enabled: true });
  });

  test.each(allProtocols)("a change made over %s takes effect on every protocol", async (name) => {
    const { protocols, clock } = contract;
    const { ok, home } = await openScene(protocols[name], clock);
    const { keyId, key } = await ok("createKey", home.key, { scopes: ["keys.read"] });
    const seenOverEveryProtocol = async (expected: object) => {
      for (const protocol of allProtocols)
        expect(await protocols[protocol].call("listKeys", key, {})).toMatchObject(expected);
    };
    await seenOverEveryProtocol({ ok: true });
    await ok("updateKey", home.key, { keyId, scopes: null });
    await seenOverEveryProtocol({ ok: false, code: "authorization/insufficient_permissions" });
    await ok("updateKey", home.key, { keyId, enabled: false });
    await seenOverEveryProtocol({ ok: false, code: "authorization/key_disabled" });
    await ok("deleteKey", home.key, { keyId });
    await seenOverEveryProtocol({ ok: false, code: "authentication/key_not_found" });
  });
});
