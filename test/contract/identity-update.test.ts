import { describe, expect } from "vitest";
import { openContract } from "./cases.js";

const { everyProtocol } = openContract();

describe("updating an identity", () => {
  for (const by of ["identityId", "externalId", "identity", "identity, its identityId"]) {
    everyProtocol(
      `meta can be replaced as a whole, with the identity named by ${by}, and nothing else changes`,
      async (scene) => {
        const request = { externalId: "user_1", meta: { plan: "pro", seats: 5 } };
        const { identityId } = await scene.ok("createIdentity", scene.home.key, request);
        await scene.ok("createIdentity", scene.home.key, { externalId: "user_2", meta: { other: true } });
        const [before, other] = await scene.ok("listIdentities", scene.home.key);
        await scene.clock.advance(1000);
        const value = by.endsWith("identityId") ? identityId : "user_1";
        const update = { [by.split(",")[0] ?? ""]: value, meta: { plan: "free", nested: [{ a: null }] } };
        const after = await scene.ok("updateIdentity", scene.home.key, update);
        expect(after).toEqual({ ...before, meta: update.meta, updatedAt: expect.any(Number) });
        expect(after.updatedAt).toBeGreaterThanOrEqual(after.createdAt + 1000);
        expect(await scene.ok("listIdentities", scene.home.key)).toEqual([after, other]);
      },
    );
  }

  for (const [how, meta] of [
    ["null", null],
    ["the empty object", {}],
  ] as const) {
    everyProtocol(`meta can be cleared by ${how}: it is then the empty object`, async (scene) => {
      await scene.ok("createIdentity", scene.home.key, { externalId: "user_1", meta: { plan: "pro" } });
      const after = await scene.ok("updateIdentity", scene.home.key, { externalId: "user_1", meta });
      expect(after.meta).toStrictEqual({});
      expect(await scene.ok("getIdentity", scene.home.key, { externalId: "user_1" })).toEqual(after);
    });
  }

  everyProtocol("an empty update returns the identity, and changes nothing", async (scene) => {
    await scene.ok("createIdentity", scene.home.key, { externalId: "user_1", meta: { plan: "pro" } });
    const before = await scene.ok("getIdentity", scene.home.key, { externalId: "user_1" });
    await scene.clock.advance(1000);
    expect(await scene.ok("updateIdentity", scene.home.key, { externalId: "user_1" })).toEqual(before);
    const events = await scene.ok("listAuditEvents", scene.home.key, { resourceId: before.identityId });
    expect(events.map(({ type }) => type)).toEqual(["identity.create"]);
  });

  everyProtocol("the change is visible at once in the identity's keys, and in their verification", async (scene) => {
    const { keyId, key } = await scene.ok("createKey", scene.home.key, { externalId: "user_1" });
    const identity = await scene.ok("updateIdentity", scene.home.key, { externalId: "user_1", meta: { plan: "free" } });
    expect((await scene.ok("getKey", scene.home.key, { keyId })).identity).toEqual(identity);
    expect((await scene.ok("verifyKey", scene.home.key, { key })).identity).toEqual(identity);
  });

  everyProtocol(
    "an update without a reference is refused, and the error names the three possible fields",
    async (scene) => {
      const request = { meta: { plan: "free" } };
      const { fields } = await scene.refused("application/invalid_input", "updateIdentity", scene.home.key, request);
      const [named] = fields?.map(({ location }) => location.split("|")) ?? [];
      expect(named?.sort()).toEqual(["externalId", "identity", "identityId"]);
    },
  );
});

describe("searching identities", () => {
  const externalIds = [
    "user_1",
    "User_2",
    "admin",
    "100%",
    "a_b",
    "axb",
    "back\\slash",
    "Größe",
    "日本語",
    "ΟΔΟΣ_Й",
    "user_10",
  ];

  /** Search texts, and the externalIds found, newest last. */
  const searches: [search: string, found: string[]][] = [
    ["user_1", ["user_1", "user_10"]],
    ["USER", ["user_1", "User_2", "user_10"]],
    ["user_10", ["user_10"]],
    ["dmi", ["admin"]],
    ["%", ["100%"]],
    ["a_b", ["a_b"]],
    ["_", ["user_1", "User_2", "a_b", "ΟΔΟΣ_Й", "user_10"]],
    ["\\", ["back\\slash"]],
    ["*", []],
    ["'; drop table identities; --", []],
    ["größe", ["Größe"]],
    ["RÖ", ["Größe"]],
    // Neither of these small letters is the lower case of the capital in every position.
    ["οδοσ", ["ΟΔΟΣ_Й"]],
    ["οδος", ["ΟΔΟΣ_Й"]],
    ["Σ_й", ["ΟΔΟΣ_Й"]],
    ["本", ["日本語"]],
    ["nobody", []],
    [" ", []],
  ];

  everyProtocol("finds externalIds that contain the text, ignoring case and without wildcards", async (scene) => {
    for (const externalId of externalIds) await scene.ok("createIdentity", scene.home.key, { externalId });
    for (const [search, found] of searches) {
      const { data, pagination } = await scene.page("listIdentities", scene.home.key, { search });
      expect({ search, found: data.map(({ externalId }) => externalId) }).toEqual({ search, found });
      expect(pagination).toEqual({ hasMore: false });
    }
  });

  everyProtocol("pagination: every page but the last is full", async (scene) => {
    for (const externalId of externalIds) await scene.ok("createIdentity", scene.home.key, { externalId });
    const first = await scene.page("listIdentities", scene.home.key, { search: "user", limit: 2 });
    expect(first.data.map(({ externalId }) => externalId)).toEqual(["user_1", "User_2"]);
    const cursor = first.pagination?.cursor;
    const second = await scene.page("listIdentities", scene.home.key, { search: "user", limit: 2, cursor });
    expect(second.data.map(({ externalId }) => externalId)).toEqual(["user_10"]);
    expect(second.pagination).toEqual({ hasMore: false });
  });

  everyProtocol("finds neither deleted identities nor those of another workspace", async (scene) => {
    const other = await scene.newWorkspace();
    await scene.ok("createIdentity", other.key, { externalId: "user_theirs" });
    await scene.ok("createIdentity", scene.home.key, { externalId: "user_gone" });
    await scene.ok("deleteIdentity", scene.home.key, { externalId: "user_gone" });
    expect(await scene.ok("listIdentities", scene.home.key, { search: "user" })).toEqual([]);
  });
});
