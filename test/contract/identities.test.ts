import { describe, expect } from "vitest";
import { openContract } from "./cases.js";
import { nested } from "./meta.js";

const { everyProtocol } = openContract();

/** JSON objects that must be returned as they were sent. */
const metas: Record<string, Record<string, unknown>> = {
  "no members": {},
  "deep nesting": { a: { b: { c: [{ d: [[], {}] }] } } },
  "32 levels": nested(32),
  nulls: { nothing: null, list: [null, [null]] },
  "floats and large numbers": {
    tenth: 0.1,
    tiny: 5e-324,
    huge: 1.7976931348623157e308,
    whole: 9007199254740991,
    minus: -1.5,
  },
  "text of many scripts": { "ключ 🗝️": "日本語 \u{1f469}\u{200d}\u{1f4bb}", combining: "e\u0301 is not \u00e9" },
  "text that looks like something else": { time: "2024-01-01T00:00:00Z", number: "1", id: "null", html: "</script>" },
  "control characters other than NUL": { text: "\t\n\r\u0001\u001f\u007f\u0085\u2028" },
  "an empty key and an empty text": { "": "", nested: { "": { "": 0 } } },
  "keys that every JavaScript object inherits": { constructor: 1, toString: "x", hasOwnProperty: null, length: 0 },
  "keys that are names of API fields": { meta: { externalId: "x" }, createdAt: "y", case: "z", $typeName: "t" },
  "true and false": { yes: true, no: false },
};

describe("creating and reading an identity", () => {
  everyProtocol("createIdentity returns the new identity's id and nothing else", async (scene) => {
    const created = await scene.ok("createIdentity", scene.home.key, { externalId: "user_1", meta: { plan: "pro" } });
    expect(created).toEqual({ identityId: expect.stringMatching(/^id_[0-9a-z]{26}$/) });
  });

  everyProtocol(
    "an identity is found by identityId, by externalId and by identity, with the same result",
    async (scene) => {
      const before = scene.clock.now();
      const request = { externalId: "user_1", meta: { plan: "pro" } };
      const { identityId } = await scene.ok("createIdentity", scene.home.key, request);
      const found = await scene.ok("getIdentity", scene.home.key, { identityId });
      expect(found).toEqual({
        identityId,
        id: identityId,
        ...request,
        ratelimits: [],
        createdAt: expect.any(Number),
        updatedAt: found.createdAt,
      });
      expect(found.createdAt).toBeGreaterThanOrEqual(before);
      expect(found.createdAt).toBeLessThanOrEqual(scene.clock.now());
      for (const reference of [{ externalId: "user_1" }, { identity: identityId }, { identity: "user_1" }]) {
        expect(await scene.ok("getIdentity", scene.home.key, reference)).toEqual(found);
      }
      expect(await scene.ok("listIdentities", scene.home.key)).toEqual([found]);
    },
  );

  everyProtocol("an identity without meta has the empty object", async (scene) => {
    await scene.ok("createIdentity", scene.home.key, { externalId: "user_1" });
    expect(await scene.ok("getIdentity", scene.home.key, { externalId: "user_1" })).toMatchObject({ meta: {} });
  });

  for (const [what, meta] of Object.entries(metas)) {
    everyProtocol(`meta with ${what} is returned unchanged, for identities and keys`, async (scene) => {
      const { identityId } = await scene.ok("createIdentity", scene.home.key, { externalId: "user_1", meta });
      await scene.ok("createKey", scene.home.key, { identityId, meta });
      expect((await scene.ok("getIdentity", scene.home.key, { identityId })).meta).toStrictEqual(meta);
      const [identity] = await scene.ok("listIdentities", scene.home.key);
      const [, key] = await scene.ok("listKeys", scene.home.key);
      expect([identity?.meta, key?.meta, key?.identity?.meta]).toStrictEqual([meta, meta, meta]);
    });
  }

  everyProtocol("a duplicate externalId is refused, and the existing identity is unchanged", async (scene) => {
    await scene.ok("createIdentity", scene.home.key, { externalId: "user_1", meta: { first: true } });
    const again = { externalId: "user_1", meta: { first: false } };
    await scene.refused("data/identity_already_exists", "createIdentity", scene.home.key, again);
    const identities = await scene.ok("listIdentities", scene.home.key);
    expect(identities.map(({ meta }) => meta)).toEqual([{ first: true }]);
  });

  everyProtocol("externalIds are compared byte for byte: case and Unicode composition matter", async (scene) => {
    const externalIds = ["user", "User", "USER", "\u00e9", "e\u0301", " user", "user ", "ß", "ss"];
    for (const externalId of externalIds) await scene.ok("createIdentity", scene.home.key, { externalId });
    for (const externalId of externalIds) {
      expect(await scene.ok("getIdentity", scene.home.key, { externalId })).toMatchObject({ externalId });
    }
    const listed = await scene.ok("listIdentities", scene.home.key);
    expect(listed.map((identity) => identity.externalId)).toEqual(externalIds);
  });

  everyProtocol(
    "if one identity's externalId is another's identityId, each is still found by its own",
    async (scene) => {
      const { identityId } = await scene.ok("createIdentity", scene.home.key, { externalId: "user_1" });
      const other = await scene.ok("createIdentity", scene.home.key, { externalId: identityId });
      expect(await scene.ok("getIdentity", scene.home.key, { identityId })).toMatchObject({ externalId: "user_1" });
      expect(await scene.ok("getIdentity", scene.home.key, { externalId: identityId })).toMatchObject(other);
    },
  );
});

describe("deleting an identity", () => {
  for (const by of ["identityId", "externalId", "identity"]) {
    everyProtocol(`an identity can be deleted by ${by}, and no other is deleted`, async (scene) => {
      const { identityId } = await scene.ok("createIdentity", scene.home.key, { externalId: "user_1" });
      await scene.ok("createIdentity", scene.home.key, { externalId: "user_2" });
      const reference = { [by]: by === "identityId" ? identityId : "user_1" };
      expect(await scene.ok("deleteIdentity", scene.home.key, reference)).toEqual({});
      const left = await scene.ok("listIdentities", scene.home.key);
      expect(left.map(({ externalId }) => externalId)).toEqual(["user_2"]);
    });
  }

  everyProtocol("the externalId of a deleted identity can be used again at once, for a new identity", async (scene) => {
    const request = { externalId: "user_1", meta: { life: 1 } };
    const first = await scene.ok("createIdentity", scene.home.key, request);
    await scene.ok("deleteIdentity", scene.home.key, first);
    const second = await scene.ok("createIdentity", scene.home.key, { ...request, meta: { life: 2 } });
    expect(second.identityId).not.toBe(first.identityId);
    const found = await scene.ok("getIdentity", scene.home.key, { externalId: "user_1" });
    expect(found).toMatchObject({ ...second, meta: { life: 2 } });
  });
});
