import { beforeAll, describe, expect } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { redisInUse } from "../support/clients/verify-calls.js";
import { openContract } from "./cases.js";
import type { Scene } from "./scene.js";

const contract = openContract();
const { everyProtocol, someProtocols } = contract;

beforeAll(() => redisInUse(contract.app));

/** A window that does not end within a test. */
const duration = 600_000;
const ofUser = { namespace: "email.send", identifier: "user_1" };

const limitedKey = ({ ok, home }: Scene, ...ratelimits: object[]) => ok("createKey", home.key, { ratelimits });

/** Checks that a request is refused because of these fields. */
async function expectInvalid(scene: Scene, locations: string[], ...call: Parameters<Scene["call"]>): Promise<void> {
  const { fields } = await scene.refused("application/invalid_input", ...call);
  expect(fields?.map(({ location }) => location)).toEqual(locations);
}

describe("verifying a key with rate limits", () => {
  everyProtocol("a verification returns the state of each limit, in the order of their names", async (scene) => {
    const { ok, home } = scene;
    const { identityId } = await ok("createIdentity", home.key, {
      externalId: "user_1",
      ratelimits: [{ name: "b", limit: 10, duration, autoApply: true }],
    });
    const own = [
      { name: "c", limit: 5, duration, autoApply: true },
      { name: "a", limit: 5, duration: 1_000 },
    ];
    const { keyId, key } = await ok("createKey", home.key, { identityId, ratelimits: own });
    const stored = await ok("getKey", home.key, { keyId });
    const ids = Object.fromEntries(
      [...stored.ratelimits, ...(stored.identity?.ratelimits ?? [])].map(({ name, id }) => [name, id]),
    );
    const result = await ok("verifyKey", home.key, { key, ratelimits: [{ name: "a", cost: 2 }] });
    const passed = { exceeded: false, reset: expect.any(Number) };
    expect(result.ratelimits).toEqual([
      { id: ids["a"], name: "a", limit: 5, duration: 1_000, autoApply: false, remaining: 3, ...passed },
      { id: ids["b"], name: "b", limit: 10, duration, autoApply: true, remaining: 9, ...passed },
      { id: ids["c"], name: "c", limit: 5, duration, autoApply: true, remaining: 4, ...passed },
    ]);
    const [first, second] = result.ratelimits;
    expect(second?.reset).toBeGreaterThan(first?.reset ?? Number.NaN);
    expect(second?.reset).toBeLessThanOrEqual(Date.now() + duration);
  });

  everyProtocol("beyond a limit the key is RATE_LIMITED, and its settings are returned", async (scene) => {
    const { ok, home } = scene;
    const { keyId, key } = await limitedKey(scene, { name: "requests", limit: 2, duration, autoApply: true });
    for (let times = 0; times < 2; times++)
      expect(await ok("verifyKey", home.key, { key })).toMatchObject({ valid: true });
    expect(await ok("verifyKey", home.key, { key })).toMatchObject({
      valid: false,
      code: "RATE_LIMITED",
      keyId,
      enabled: true,
      ratelimits: [{ name: "requests", exceeded: true, remaining: 0 }],
    });
  });

  everyProtocol("a key that is refused otherwise uses none of its limits", async (scene) => {
    const { ok, home } = scene;
    const { keyId, key } = await limitedKey(scene, { name: "requests", limit: 1, duration, autoApply: true });
    const lacking = await ok("verifyKey", home.key, { key, permissions: "documents.read" });
    expect(lacking).toMatchObject({ code: "INSUFFICIENT_PERMISSIONS", ratelimits: [] });
    await ok("updateKey", home.key, { keyId, enabled: false });
    expect(await ok("verifyKey", home.key, { key })).toMatchObject({ code: "DISABLED", ratelimits: [] });
    await ok("updateKey", home.key, { keyId, enabled: true });
    expect(await ok("verifyKey", home.key, { key })).toMatchObject({ code: "VALID" });
  });

  everyProtocol("an unknown limit is refused with its place and a remedy, and nothing is counted", async (scene) => {
    const { ok, home } = scene;
    const { key } = await limitedKey(scene, { name: "requests", limit: 3, duration, autoApply: true });
    const ratelimits = [{ name: "requests" }, { name: "unknown" }];
    const { fields } = await scene.refused("application/invalid_input", "verifyKey", home.key, { key, ratelimits });
    expect(fields).toEqual([
      { location: "ratelimits[1].name", message: expect.stringContaining("send `limit` and `duration`") },
    ]);
    expect(await ok("verifyKey", home.key, { key })).toMatchObject({ ratelimits: [{ remaining: 2 }] });
  });

  everyProtocol("an invalid limit of a request is refused with its place", async (scene) => {
    const { home } = scene;
    const { key } = await limitedKey(scene, { name: "a", limit: 3, duration });
    const invalid: [object, string][] = [
      [{ name: "" }, "ratelimits[0].name"],
      [{ name: "a", cost: -1 }, "ratelimits[0].cost"],
      [{ name: "a", limit: 0, duration }, "ratelimits[0].limit"],
      [{ name: "a", limit: 1, duration: 10 }, "ratelimits[0].duration"],
      [{ name: "a", limit: 1 }, "ratelimits[0]"],
    ];
    for (const [check, location] of invalid) {
      await expectInvalid(scene, [location], "verifyKey", home.key, { key, ratelimits: [check] });
    }
    const twice = [{ name: "a" }, { name: "a" }];
    await expectInvalid(scene, ["ratelimits"], "verifyKey", home.key, { key, ratelimits: twice });
  });

  everyProtocol("invalid settings are refused with their place, and store nothing", async (scene) => {
    const { ok, home } = scene;
    const valid = { name: "a", limit: 1, duration };
    const invalid: [object[], string][] = [
      [[valid, { ...valid, name: "b", limit: 0 }], "ratelimits[1].limit"],
      [[{ ...valid, limit: 1_000_000_001 }], "ratelimits[0].limit"],
      [[{ ...valid, duration: 10 }], "ratelimits[0].duration"],
      [[{ ...valid, duration: 2_592_000_001 }], "ratelimits[0].duration"],
      [[{ ...valid, name: "" }], "ratelimits[0].name"],
      [[valid, valid], "ratelimits"],
      [Array.from({ length: 51 }, (_, index) => ({ ...valid, name: `${index}` })), "ratelimits"],
    ];
    for (const [ratelimits, location] of invalid) {
      await expectInvalid(scene, [location], "createKey", home.key, { ratelimits });
      await expectInvalid(scene, [location], "createIdentity", home.key, { externalId: "user_1", ratelimits });
    }
    expect(await ok("listKeys", home.key)).toHaveLength(1);
    expect(await ok("listIdentities", home.key)).toEqual([]);
  });
});

describe("the stand-alone limiter", () => {
  everyProtocol("a use within the limit is a success, and one beyond it is not an error", async ({ ok, home }) => {
    const request = { ...ofUser, limit: 3, duration };
    const reset = expect.any(Number);
    expect(await ok("limit", home.key, request)).toEqual({ success: true, limit: 3, remaining: 2, reset });
    expect(await ok("limit", home.key, { ...request, cost: 3 })).toEqual({
      success: false,
      limit: 3,
      remaining: 2,
      reset,
    });
    expect(await ok("limit", home.key, { ...request, cost: 2 })).toMatchObject({ success: true, remaining: 0 });
    expect(await ok("limit", home.key, { ...request, cost: 0 })).toMatchObject({ success: true, remaining: 0 });
    expect(await ok("limit", home.key, request)).toMatchObject({ success: false, remaining: 0 });
  });

  everyProtocol("workspaces count separately", async ({ ok, home, newWorkspace }) => {
    const { key: other } = await newWorkspace();
    const request = { ...ofUser, limit: 1, duration };
    for (const key of [home.key, other]) expect(await ok("limit", key, request)).toMatchObject({ success: true });
  });

  everyProtocol("several limits are counted together, in the order of the request", async ({ ok, home }) => {
    const limits = ["b", "a"].map((identifier) => ({ namespace: "n", identifier, limit: 2, duration }));
    const reset = expect.any(Number);
    expect(await ok("multiLimit", home.key, { limits })).toEqual({
      passed: true,
      limits: [
        { namespace: "n", identifier: "b", limit: 2, remaining: 1, passed: true, reset },
        { namespace: "n", identifier: "a", limit: 2, remaining: 1, passed: true, reset },
      ],
    });
  });

  // Over HTTP, the list is the body itself.
  for (const [names, location] of [
    [["grpc", "connect"], "limits[2]"],
    [["http"], "body[2]"],
  ] as const) {
    someProtocols(names, `the same pair twice is refused with its place, over ${names}`, async (scene) => {
      const one = { ...ofUser, limit: 2, duration };
      const limits = [one, { ...one, identifier: "other" }, { ...one, duration: 1_000 }];
      await expectInvalid(scene, [location], "multiLimit", scene.home.key, { limits });
      expect(await scene.ok("limit", scene.home.key, one)).toMatchObject({ remaining: 1 });
    });
  }

  everyProtocol("an invalid use is refused with its place, and nothing is counted", async (scene) => {
    const one = { ...ofUser, limit: 2, duration };
    const invalid: [object, string][] = [
      [{ limit: 0 }, "limit"],
      [{ duration: 10 }, "duration"],
      [{ cost: -1 }, "cost"],
      [{ namespace: "" }, "namespace"],
      [{ identifier: "x".repeat(256) }, "identifier"],
    ];
    for (const [wrong, location] of invalid) {
      await expectInvalid(scene, [location], "limit", scene.home.key, { ...one, ...wrong });
    }
    expect(await scene.ok("limit", scene.home.key, one)).toMatchObject({ remaining: 1 });
  });
});

describe("overrides", () => {
  everyProtocol("an override is set, returned, listed, applied, replaced and deleted", async (scene) => {
    const { ok, home } = scene;
    const { overrideId } = await ok("setOverride", home.key, { ...ofUser, limit: 100, duration });
    const override = { overrideId, ...ofUser, limit: 100, duration };
    expect(await ok("getOverride", home.key, ofUser)).toEqual(override);
    expect(await ok("listOverrides", home.key, { namespace: ofUser.namespace })).toEqual([override]);
    expect(await ok("limit", home.key, { ...ofUser, limit: 1, duration: 1_000 })).toMatchObject({
      limit: 100,
      remaining: 99,
      overrideId,
    });
    expect(await ok("setOverride", home.key, { ...ofUser, limit: 5, duration })).toEqual({ overrideId });
    expect(await ok("getOverride", home.key, ofUser)).toEqual({ ...override, limit: 5 });
    expect(await ok("deleteOverride", home.key, ofUser)).toEqual({});
    await scene.refused("data/override_not_found", "getOverride", home.key, ofUser);
    await scene.refused("data/override_not_found", "deleteOverride", home.key, ofUser);
    const types = (await ok("listAuditEvents", home.key, { resourceId: overrideId })).map(({ type }) => type);
    expect(types).toEqual(["override.delete", "override.update", "override.create"]);
  });

  everyProtocol("a set that changes nothing adds no event", async ({ ok, home }) => {
    const { overrideId } = await ok("setOverride", home.key, { ...ofUser, limit: 100, duration });
    await ok("setOverride", home.key, { ...ofUser, limit: 100, duration });
    expect(await ok("listAuditEvents", home.key, { resourceId: overrideId })).toHaveLength(1);
  });

  everyProtocol("those of another workspace do not exist", async (scene) => {
    const { ok, home, newWorkspace } = scene;
    const { key: other } = await newWorkspace();
    await ok("setOverride", home.key, { ...ofUser, limit: 100, duration });
    await scene.refused("data/override_not_found", "getOverride", other, ofUser);
    await scene.refused("data/override_not_found", "deleteOverride", other, ofUser);
    expect(await ok("listOverrides", other, { namespace: ofUser.namespace })).toEqual([]);
    expect(await ok("limit", other, { ...ofUser, limit: 1, duration })).toMatchObject({ limit: 1 });
  });

  everyProtocol("they are listed in pages, newest last, each namespace apart", async ({ ok, page, home }) => {
    const identifiers = ["c", "a", "b*"];
    for (const identifier of identifiers)
      await ok("setOverride", home.key, { namespace: "n", identifier, limit: 1, duration });
    await ok("setOverride", home.key, { ...ofUser, limit: 1, duration });
    const first = await page("listOverrides", home.key, { namespace: "n", limit: 2 });
    expect(first.pagination).toMatchObject({ hasMore: true });
    const cursor = first.pagination?.cursor;
    const second = await page("listOverrides", home.key, { namespace: "n", limit: 2, cursor });
    expect([...first.data, ...second.data].map(({ identifier }) => identifier)).toEqual(identifiers);
    expect(second.pagination).toEqual({ hasMore: false });
  });

  everyProtocol("a namespace has a maximum of overrides, and of those with *", async (scene) => {
    const { ok, home } = scene;
    const sql = openSql(contract.app.databaseUrl, { max: 1, onnotice: () => {} });
    try {
      await sql`
        insert into rate_limit_overrides (override_id, workspace_id, namespace, identifier, "limit", duration, created_at)
        select 'ovr_' || ${home.workspaceId} || n, ${home.workspaceId}, 'full', case when n <= 99 then n || '*' else n::text end,
          1, 1000, now()
        from generate_series(1, 998) as n`;
    } finally {
      await sql.end();
    }
    const set = (identifier: string) => ({ namespace: "full", identifier, limit: 1, duration });
    await ok("setOverride", home.key, set("100th *"));
    const patterns = await scene.refused("limits/quota_exceeded", "setOverride", home.key, set("101st *"));
    expect(patterns.detail).toContain("100 overrides with `*`");
    await ok("setOverride", home.key, set("1000th"));
    const all = await scene.refused("limits/quota_exceeded", "setOverride", home.key, set("1001st"));
    expect(all.detail).toContain("maximum of 1000 overrides");
    await ok("setOverride", home.key, set("1000th"));
    await ok("deleteOverride", home.key, { namespace: "full", identifier: "1000th" });
    await ok("setOverride", home.key, set("1001st"));
  });
});
