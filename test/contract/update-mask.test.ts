import { describe, expect } from "vitest";
import { openContract } from "./cases.js";
import { createFullKey, readSettings } from "./key-settings.js";

const { someProtocols } = openContract();
const messageProtocols = ["grpc", "connect", "grpc-web"] as const;
const invalid = "application/invalid_input";

/** Paths into messages, of which the mask can name only the members of `credits`. */
const nestedPaths = ["credits.cost", "credits.refill.amount", "ratelimits.limit", "ratelimits[0]", "api_id"];

describe("the mask of an update", () => {
  someProtocols(messageProtocols, "changes only the fields that it names, not others that are set", async (scene) => {
    const { keyId } = await createFullKey(scene);
    const before = await readSettings(scene, keyId);
    const request = {
      keyId,
      name: "second",
      enabled: false,
      meta: { a: 1 },
      updateMask: { paths: ["name", "meta"] },
    };
    const after = await scene.ok("updateKey", scene.home.key, request);
    expect(after).toEqual({ ...before, name: "second", meta: { a: 1 }, updatedAt: after.updatedAt });
  });

  someProtocols(messageProtocols, "clears named fields that are not set", async (scene) => {
    const { keyId } = await createFullKey(scene);
    const updateMask = { paths: ["name", "external_id", "scopes", "permissions", "meta", "expires"] };
    const after = await scene.ok("updateKey", scene.home.key, { keyId, enabled: false, updateMask });
    expect(after).toMatchObject({ enabled: true, scopes: [], permissions: [] });
    for (const field of ["name", "identity", "meta", "expires"]) expect(after).not.toHaveProperty(field);
  });

  someProtocols(messageProtocols, "can be omitted: then the fields that are set change", async (scene) => {
    const { keyId } = await createFullKey(scene);
    const before = await readSettings(scene, keyId);
    const after = await scene.ok("updateKey", scene.home.key, { keyId, name: "second", enabled: false });
    expect(after).toEqual({ ...before, name: "second", enabled: false, updatedAt: after.updatedAt });
  });

  someProtocols(messageProtocols, "may name a field twice", async (scene) => {
    const { keyId } = await createFullKey(scene);
    const request = { keyId, name: "second", updateMask: { paths: ["name", "name"] } };
    expect(await scene.ok("updateKey", scene.home.key, request)).toMatchObject({ name: "second" });
  });

  someProtocols(messageProtocols, "changes the credits and their refill separately", async (scene) => {
    const refill = { interval: "daily", amount: 100 };
    const { keyId } = await scene.ok("createKey", scene.home.key, { credits: { remaining: 10, refill } });
    const update = async (credits: object | undefined, ...paths: string[]) => {
      const request = { keyId, ...(credits && { credits }), updateMask: { paths } };
      return (await scene.ok("updateKey", scene.home.key, request)).credits;
    };
    expect(await update({ remaining: 20 }, "credits.remaining")).toEqual({ remaining: 20, refill });
    expect(await update({ remaining: 30, refill: { ...refill, amount: 5 } }, "credits.remaining")).toEqual({
      remaining: 30,
      refill,
    });
    const monthly = { interval: "monthly", amount: 7, refillDay: 31 };
    expect(await update({ refill: monthly }, "credits.refill")).toEqual({ remaining: 30, refill: monthly });
    expect(await update({}, "credits.refill")).toEqual({ remaining: 30 });
    expect(await update({ remaining: 5, refill }, "credits")).toEqual({ remaining: 5, refill });
    expect(await update(undefined, "credits")).toBeUndefined();
  });

  someProtocols(messageProtocols, "clears rate limits and roles that are named and not set", async (scene) => {
    const { ok, home } = scene;
    await ok("createRole", home.key, { name: "editor" });
    const ratelimits = [{ name: "requests", limit: 5, duration: 1000 }];
    const { keyId } = await ok("createKey", home.key, { ratelimits, roles: ["editor"], credits: { remaining: 1 } });
    const updateMask = { paths: ["ratelimits", "roles", "credits"] };
    const after = await ok("updateKey", home.key, { keyId, updateMask });
    expect(after).toMatchObject({ ratelimits: [], roles: [] });
    expect(after).not.toHaveProperty("credits");
    await ok("createIdentity", home.key, { externalId: "user_1", ratelimits });
    const request = { externalId: "user_1", updateMask: { paths: ["ratelimits"] } };
    expect((await ok("updateIdentity", home.key, request)).ratelimits).toEqual([]);
  });

  for (const path of [
    "nonsense",
    "prefix",
    "key_id",
    "update_mask",
    "start",
    "*",
    "meta.plan",
    "expires.seconds",
    ...nestedPaths,
  ]) {
    someProtocols(
      ["grpc", "grpc-web"],
      `of a key that names ${path} is refused, and nothing changes`,
      async (scene) => {
        const { keyId } = await createFullKey(scene);
        const before = await readSettings(scene, keyId);
        const request = { keyId, name: "second", meta: { plan: "free" }, updateMask: { paths: ["name", path] } };
        const { fields } = await scene.refused(invalid, "updateKey", scene.home.key, request);
        expect(fields?.map(({ location }) => location)).toEqual(["updateMask"]);
        expect(await readSettings(scene, keyId)).toEqual(before);
      },
    );
  }

  for (const path of ["nonsense", "external_id", "meta.plan"]) {
    someProtocols(
      messageProtocols,
      `of an identity that names ${path} is refused, and nothing changes`,
      async (scene) => {
        const request = { externalId: "user_1", meta: { plan: "pro" } };
        await scene.ok("createIdentity", scene.home.key, request);
        const before = await scene.ok("getIdentity", scene.home.key, { externalId: "user_1" });
        const update = { ...request, meta: { plan: "free" }, updateMask: { paths: [path] } };
        const { fields } = await scene.refused(invalid, "updateIdentity", scene.home.key, update);
        expect(fields?.map(({ location }) => location)).toEqual(["updateMask"]);
        expect(await scene.ok("getIdentity", scene.home.key, { externalId: "user_1" })).toEqual(before);
      },
    );
  }

  someProtocols(["http"], "does not exist over HTTP, where null clears a field", async (scene) => {
    const { keyId } = await createFullKey(scene);
    await scene.ok("createIdentity", scene.home.key, { externalId: "user_2" });
    for (const updateMask of ["name", { paths: ["name"] }, null]) {
      const ofKey = await scene.refused(invalid, "updateKey", scene.home.key, { keyId, updateMask });
      expect(ofKey.fields?.map(({ location }) => location)).toEqual(["updateMask"]);
      const request = { externalId: "user_2", updateMask };
      const ofIdentity = await scene.refused(invalid, "updateIdentity", scene.home.key, request);
      expect(ofIdentity.fields?.map(({ location }) => location)).toEqual(["updateMask"]);
    }
  });
});
