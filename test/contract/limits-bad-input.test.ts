import { describe, expect, test } from "vitest";
import type { Refusal } from "../support/clients/outcome.js";
import type { CallRequest } from "../support/clients/protocol-client.js";
import type { OperationName } from "../support/operations.js";
import { newHash } from "./callers.js";
import { openContract } from "./cases.js";
import { openScene, type Scene } from "./scene.js";

const contract = openContract();
const { everyProtocol, someProtocols } = contract;
const invalid = "application/invalid_input";

const perMinute = { limit: 10, duration: 60_000 };
const requestLimit = { name: "requests", ...perMinute };

/** A wrong value, the field that the error must name, and a word of the error. */
type Wrong = readonly [what: string, value: unknown, location: string, word?: string];

const many = Array.from({ length: 51 }, (_, index) => ({ ...requestLimit, name: `limit ${index}` }));

/** Wrong rate limits of a key or an identity. */
const wrongRateLimits: readonly Wrong[] = [
  ["a limit of 0", [{ ...requestLimit, limit: 0 }], "ratelimits[0].limit"],
  ["a negative limit", [requestLimit, { ...requestLimit, name: "b", limit: -5 }], "ratelimits[1].limit"],
  ["a limit above a billion", [{ ...requestLimit, limit: 1_000_000_001 }], "ratelimits[0].limit"],
  ["a window of 10 ms", [{ ...requestLimit, duration: 10 }], "ratelimits[0].duration"],
  ["a window of 999 ms", [{ ...requestLimit, duration: 999 }], "ratelimits[0].duration"],
  ["a window of more than 30 days", [{ ...requestLimit, duration: 2_592_000_001 }], "ratelimits[0].duration"],
  ["no window", [{ name: "requests", limit: 5 }], "ratelimits[0].duration"],
  ["no limit", [{ name: "requests", duration: 1_000 }], "ratelimits[0].limit"],
  ["no name", [perMinute], "ratelimits[0].name"],
  ["an empty name", [{ ...requestLimit, name: "" }], "ratelimits[0].name"],
  ["a name of 129 characters", [{ ...requestLimit, name: "x".repeat(129) }], "ratelimits[0].name"],
  ["a name with NUL", [{ ...requestLimit, name: "a\0b" }], "ratelimits[0].name"],
  ["51 limits", many, "ratelimits"],
  ["two limits with one name", [requestLimit, { ...requestLimit, limit: 5 }], "ratelimits", "name"],
];

const daily = { interval: "daily", amount: 100 };
const monthly = { interval: "monthly", amount: 100 };
const refilled = (refill: object) => ({ remaining: 5, refill });

/** Wrong credits of a key. */
const wrongCredits: readonly Wrong[] = [
  ["negative credits", { remaining: -1 }, "credits.remaining"],
  ["more than 10^12 credits", { remaining: 1_000_000_000_001 }, "credits.remaining"],
  ["a refill of 0", refilled({ ...daily, amount: 0 }), "credits.refill.amount"],
  ["a negative refill", refilled({ ...daily, amount: -100 }), "credits.refill.amount"],
  ["a refill without an amount", refilled({ interval: "daily" }), "credits.refill.amount"],
  ["a weekly refill", refilled({ ...daily, interval: "weekly" }), "credits.refill.interval"],
  ["a refill without an interval", refilled({ amount: 100 }), "credits.refill.interval"],
  ["refillDay 0", refilled({ ...monthly, refillDay: 0 }), "credits.refill.refillDay"],
  ["refillDay 32", refilled({ ...monthly, refillDay: 32 }), "credits.refill.refillDay"],
  ["refillDay with a daily refill", refilled({ ...daily, refillDay: 15 }), "credits.refill", "refillDay"],
];

/** The fields that a refusal names. */
function locations({ fields }: Refusal): string[] | undefined {
  return fields?.map(({ location }) => location);
}

async function expectRefused(scene: Scene, operation: OperationName, request: CallRequest, wrong: Wrong) {
  const [what, , location, word = ""] = wrong;
  const refusal = await scene.refused(invalid, operation, scene.home.key, request);
  expect(locations(refusal), what).toEqual([location]);
  expect(refusal.detail, what).toContain(location);
  expect(refusal.detail, what).toContain(word);
}

/** A key with a rate limit that applies automatically, and credits. */
function createLimitedKey({ ok, home }: Scene) {
  const ratelimits = [{ ...requestLimit, autoApply: true }];
  return ok("createKey", home.key, { externalId: "user_1", ratelimits, credits: { remaining: 5 } });
}

/** Verifies a key that nothing has used yet, and so has its first credit spent and its first use counted. */
async function expectUnused({ ok, home }: Scene, key: string): Promise<void> {
  const result = await ok("verifyKey", home.key, { key });
  expect(result).toMatchObject({ code: "VALID", credits: 4, ratelimits: [{ name: "requests", remaining: 9 }] });
}

describe("settings: wrong rate limits are refused, the field is named, and nothing is stored", () => {
  everyProtocol("createKey", async (scene) => {
    for (const wrong of wrongRateLimits) {
      await expectRefused(scene, "createKey", { externalId: "user_1", ratelimits: wrong[1] }, wrong);
    }
    expect(await scene.ok("listKeys", scene.home.key)).toHaveLength(1);
    expect(await scene.ok("listIdentities", scene.home.key)).toEqual([]);
  });

  everyProtocol("updateKey", async (scene) => {
    const { keyId, key } = await createLimitedKey(scene);
    const { lastUsedAt: _, ...before } = await scene.ok("getKey", scene.home.key, { keyId });
    for (const wrong of wrongRateLimits) {
      await expectRefused(scene, "updateKey", { keyId, name: "changed", ratelimits: wrong[1] }, wrong);
    }
    expect(await scene.ok("getKey", scene.home.key, { keyId })).toEqual(before);
    await expectUnused(scene, key);
  });

  everyProtocol("createIdentity and updateIdentity", async (scene) => {
    const { ok, home } = scene;
    await ok("createIdentity", home.key, { externalId: "user_1", ratelimits: [requestLimit] });
    const before = await ok("listIdentities", home.key);
    for (const wrong of wrongRateLimits) {
      await expectRefused(scene, "createIdentity", { externalId: "user_2", ratelimits: wrong[1] }, wrong);
      await expectRefused(
        scene,
        "updateIdentity",
        { externalId: "user_1", meta: { a: 1 }, ratelimits: wrong[1] },
        wrong,
      );
    }
    expect(await ok("listIdentities", home.key)).toEqual(before);
  });

  everyProtocol("migrateKeys", async (scene) => {
    for (const wrong of wrongRateLimits) {
      const [what, ratelimits, location, word] = wrong;
      const keys = [{ hash: newHash() }, { hash: newHash(), externalId: "user_1", ratelimits }];
      const nested: Wrong = [what, ratelimits, `keys[1].${location}`, word ?? ""];
      await expectRefused(scene, "migrateKeys", { migrationId: "m", keys }, nested);
    }
    expect(await scene.ok("listKeys", scene.home.key)).toHaveLength(1);
    expect(await scene.ok("listIdentities", scene.home.key)).toEqual([]);
  });

  everyProtocol("50 limits, names of 128 characters, a second and 30 days are accepted", async ({ ok, home }) => {
    const ratelimits = many.slice(0, 50).map((limit, index) => ({
      name: limit.name.padEnd(128, "x"),
      limit: index === 0 ? 1 : 1_000_000_000,
      duration: index === 0 ? 1_000 : 2_592_000_000,
      autoApply: index === 1,
    }));
    const { keyId } = await ok("createKey", home.key, { externalId: "user_1", ratelimits });
    expect((await ok("getKey", home.key, { keyId })).ratelimits).toMatchObject(ratelimits);
    const { ratelimits: ofIdentity } = await ok("updateIdentity", home.key, { externalId: "user_1", ratelimits });
    expect(ofIdentity).toMatchObject(ratelimits);
  });
});

describe("settings: wrong credits are refused, the field is named, and nothing is stored", () => {
  everyProtocol("createKey, also a refill without `remaining`", async (scene) => {
    const incomplete: Wrong = ["a refill of nothing", { refill: daily }, "credits", "remaining"];
    for (const wrong of [...wrongCredits, incomplete]) {
      await expectRefused(scene, "createKey", { externalId: "user_1", credits: wrong[1] }, wrong);
    }
    expect(await scene.ok("listKeys", scene.home.key)).toHaveLength(1);
    expect(await scene.ok("listIdentities", scene.home.key)).toEqual([]);
  });

  everyProtocol("updateKey", async (scene) => {
    const { keyId, key } = await createLimitedKey(scene);
    for (const wrong of wrongCredits) {
      await expectRefused(scene, "updateKey", { keyId, name: "changed", credits: wrong[1] }, wrong);
    }
    const after = await scene.ok("getKey", scene.home.key, { keyId });
    expect(after.credits).toEqual({ remaining: 5 });
    expect(after).not.toHaveProperty("name");
    await expectUnused(scene, key);
  });

  everyProtocol("migrateKeys", async (scene) => {
    for (const [what, credits, location, word] of wrongCredits) {
      const keys = [{ hash: newHash(), credits }, { hash: newHash() }];
      const wrong: Wrong = [what, credits, `keys[0].${location}`, word ?? ""];
      await expectRefused(scene, "migrateKeys", { migrationId: "m", keys }, wrong);
    }
    expect(await scene.ok("listKeys", scene.home.key)).toHaveLength(1);
  });

  everyProtocol("updateCredits: nothing is added or removed", async (scene) => {
    const { keyId, key } = await createLimitedKey(scene);
    const wrongChanges: readonly Wrong[] = [
      ["an unknown operation", { operation: "double", value: 1 }, "operation"],
      ["no operation", { value: 1 }, "operation"],
      ["a negative value", { operation: "increment", value: -1 }, "value"],
      ["a value above 10^12", { operation: "set", value: 1_000_000_000_001 }, "value"],
      ["an increment without a value", { operation: "increment" }, "body", "value must be set"],
      ["a decrement without a value", { operation: "decrement" }, "body", "value must be set"],
    ];
    for (const wrong of wrongChanges) {
      await expectRefused(scene, "updateCredits", { keyId, ...(wrong[1] as object) }, wrong);
    }
    await expectUnused(scene, key);
  });

  everyProtocol("an increment of a key without credits is refused, and the key stays without", async (scene) => {
    const { keyId } = await scene.ok("createKey", scene.home.key);
    for (const operation of ["increment", "decrement"]) {
      const request = { keyId, operation, value: 1 };
      const refusal = await scene.refused(invalid, "updateCredits", scene.home.key, request);
      expect(locations(refusal)).toEqual(["operation"]);
    }
    expect(await scene.ok("getKey", scene.home.key, { keyId })).not.toHaveProperty("credits");
  });

  everyProtocol("refillDay 31 is accepted: in a shorter month it is the last day", async ({ ok, home }) => {
    const credits = refilled({ ...monthly, refillDay: 31 });
    const { keyId } = await ok("createKey", home.key, { credits });
    expect((await ok("getKey", home.key, { keyId })).credits).toEqual(credits);
  });
});

describe("verifyKey: a wrong request counts nothing and spends nothing", () => {
  everyProtocol("wrong rate limits and costs are refused, and the field is named", async (scene) => {
    const { key } = await createLimitedKey(scene);
    const check = { name: "own", ...perMinute };
    const wrongChecks: readonly Wrong[] = [
      ["a limit without a duration", { ratelimits: [{ name: "a", limit: 5 }] }, "ratelimits[0]", "duration"],
      ["a duration without a limit", { ratelimits: [{ name: "a", duration: 5_000 }] }, "ratelimits[0]", "limit"],
      ["a limit of 0", { ratelimits: [{ ...check, limit: 0 }] }, "ratelimits[0].limit"],
      ["a window of 10 ms", { ratelimits: [{ ...check, duration: 10 }] }, "ratelimits[0].duration"],
      ["a negative cost", { ratelimits: [{ name: "requests", cost: -1 }] }, "ratelimits[0].cost"],
      ["no name", { ratelimits: [perMinute] }, "ratelimits[0].name"],
      ["two limits with one name", { ratelimits: [check, check] }, "ratelimits", "name"],
      ["51 limits", { ratelimits: many }, "ratelimits"],
      ["credits without a cost, which is not 0", { credits: {} }, "credits.cost", "required"],
      ["a negative cost of credits", { credits: { cost: -1 } }, "credits.cost"],
      ["a cost of more than a billion", { credits: { cost: 1_000_000_001 } }, "credits.cost"],
      ["11 tags", { tags: Array.from({ length: 11 }, (_, index) => `tag=${index}`) }, "tags"],
      ["the same tag twice", { tags: ["a", "a"] }, "tags"],
      ["an empty tag", { tags: ["a", ""] }, "tags[1]"],
    ];
    for (const wrong of wrongChecks) {
      await expectRefused(scene, "verifyKey", { key, ...(wrong[1] as object) }, wrong);
    }
    await expectUnused(scene, key);
  });

  everyProtocol("a rate limit that neither the key nor its identity has is refused, and named", async (scene) => {
    const { key } = await createLimitedKey(scene);
    const request = { key, ratelimits: [{ name: "requests" }, { name: "unknown" }] };
    const refusal = await scene.refused(invalid, "verifyKey", scene.home.key, request);
    expect(locations(refusal)).toEqual(["ratelimits[1].name"]);
    await expectUnused(scene, key);
  });

  everyProtocol("a cost of more credits than are left spends none", async ({ ok, home }) => {
    const { key } = await ok("createKey", home.key, { credits: { remaining: 5 } });
    const verify = (cost: number) => ok("verifyKey", home.key, { key, credits: { cost } });
    expect(await verify(6)).toMatchObject({ valid: false, code: "USAGE_EXCEEDED", credits: 5 });
    expect(await verify(1_000_000_000)).toMatchObject({ code: "USAGE_EXCEEDED", credits: 5 });
    expect(await verify(0)).toMatchObject({ code: "VALID", credits: 5 });
    expect(await verify(5)).toMatchObject({ code: "VALID", credits: 0 });
    expect(await verify(1)).toMatchObject({ code: "USAGE_EXCEEDED", credits: 0 });
    expect(await verify(0)).toMatchObject({ code: "VALID", credits: 0 });
  });

  everyProtocol("a cost beyond one of several rate limits counts in none of them", async ({ ok, home }) => {
    const ratelimits = [requestLimit, { ...requestLimit, name: "tokens", limit: 100 }];
    const { key } = await ok("createKey", home.key, { ratelimits });
    const verify = (requests: number, tokens: number) =>
      ok("verifyKey", home.key, {
        key,
        ratelimits: [
          { name: "requests", cost: requests },
          { name: "tokens", cost: tokens },
        ],
      });
    expect(await verify(1, 101)).toMatchObject({
      code: "RATE_LIMITED",
      ratelimits: [
        { name: "requests", exceeded: false, remaining: 10 },
        { name: "tokens", exceeded: true, remaining: 100 },
      ],
    });
    expect(await verify(3, 100)).toMatchObject({
      code: "VALID",
      ratelimits: [
        { name: "requests", exceeded: false, remaining: 7 },
        { name: "tokens", exceeded: false, remaining: 0 },
      ],
    });
  });

  everyProtocol("a key that is refused for another reason uses nothing", async (scene) => {
    const { ok, home } = scene;
    const { keyId, key } = await createLimitedKey(scene);
    const results = [await ok("verifyKey", home.key, { key, permissions: "admin" })];
    await ok("updateKey", home.key, { keyId, enabled: false });
    results.push(await ok("verifyKey", home.key, { key }));
    await ok("updateKey", home.key, { keyId, enabled: true });
    expect(results.map(({ code }) => code)).toEqual(["INSUFFICIENT_PERMISSIONS", "DISABLED"]);
    await expectUnused(scene, key);
  });
});

describe("the limiter: a wrong request counts nothing", () => {
  const ofUser = { namespace: "email.send", identifier: "user_1" };
  const wrongUses: readonly Wrong[] = [
    ["a limit of 0", { limit: 0 }, "limit"],
    ["a limit above a billion", { limit: 1_000_000_001 }, "limit"],
    ["a window of 10 ms", { duration: 10 }, "duration"],
    ["a window of more than 30 days", { duration: 2_592_000_001 }, "duration"],
    ["a negative cost", { cost: -1 }, "cost"],
    ["a cost above a billion", { cost: 1_000_000_001 }, "cost"],
    ["an empty namespace", { namespace: "" }, "namespace"],
    ["a namespace of 256 characters", { namespace: "x".repeat(256) }, "namespace"],
    ["an empty identifier", { identifier: "" }, "identifier"],
    ["an identifier with NUL", { identifier: "a\0" }, "identifier"],
  ];

  everyProtocol("limit", async (scene) => {
    for (const wrong of wrongUses) {
      await expectRefused(scene, "limit", { ...ofUser, ...perMinute, ...(wrong[1] as object) }, wrong);
    }
    expect(await scene.ok("limit", scene.home.key, { ...ofUser, ...perMinute })).toMatchObject({ remaining: 9 });
  });

  // Over HTTP, the body is the list itself, so the locations of errors begin with `body`.
  for (const [protocols, list] of [
    [["grpc", "connect", "grpc-web"], "limits"],
    [["http"], "body"],
  ] as const) {
    someProtocols(protocols, `multiLimit over ${protocols.join(" and ")}`, async (scene) => {
      const good = { ...ofUser, identifier: "user_2", ...perMinute };
      const refused = (limits: unknown[], wrong: Wrong) => expectRefused(scene, "multiLimit", { limits }, wrong);
      for (const [what, value, location] of wrongUses) {
        const bad = { ...ofUser, ...perMinute, ...(value as object) };
        await refused([good, bad], [what, value, `${list}[1].${location}`]);
      }
      const others = Array.from({ length: 51 }, (_, index) => ({ ...good, identifier: `user_${index}` }));
      await refused([], ["no limits", [], list]);
      await refused(others, ["51 limits", [], list]);
      await refused([good, { ...good, limit: 5 }], ["the same pair twice", [], `${list}[1]`]);
      expect(await scene.ok("multiLimit", scene.home.key, { limits: [good] })).toMatchObject({
        passed: true,
        limits: [{ remaining: 9 }],
      });
    });
  }

  everyProtocol("setOverride, and the limit stays as it was", async (scene) => {
    const notOfOverrides = ["a limit of 0", "a negative cost", "a cost above a billion"];
    const wrongOverrides = wrongUses.filter(([what]) => !notOfOverrides.includes(what));
    const wrongLimits: readonly Wrong[] = [
      ["a negative limit", { limit: -1 }, "limit"],
      ["no limit, which is not 0", { limit: undefined }, "limit", "required"],
    ];
    for (const wrong of [...wrongOverrides, ...wrongLimits]) {
      await expectRefused(scene, "setOverride", { ...ofUser, ...perMinute, ...(wrong[1] as object) }, wrong);
    }
    expect(await scene.ok("listOverrides", scene.home.key, { namespace: ofUser.namespace })).toEqual([]);
    expect(await scene.ok("limit", scene.home.key, { ...ofUser, ...perMinute })).toMatchObject({ limit: 10 });
  });

  everyProtocol("a cost beyond what is left is not counted", async ({ ok, home }) => {
    const use = (cost: number) => ok("limit", home.key, { ...ofUser, ...perMinute, cost });
    expect(await use(11)).toMatchObject({ success: false, remaining: 10 });
    expect(await use(4)).toMatchObject({ success: true, remaining: 6 });
    expect(await use(7)).toMatchObject({ success: false, remaining: 6 });
    expect(await use(6)).toMatchObject({ success: true, remaining: 0 });
    expect(await use(0)).toMatchObject({ success: true, remaining: 0 });
  });
});

describe("resources that do not exist are named, and nothing is stored", () => {
  everyProtocol("an unknown API", async (scene) => {
    const { ok, refused, home } = scene;
    const code = "data/api_not_found";
    const keys = [{ hash: newHash(), externalId: "user_1" }];
    for (const apiId of ["api_00000000000000000000000000", "payments"]) {
      const { detail } = await refused(code, "createKey", home.key, { apiId, externalId: "user_1" });
      expect(detail).toContain("apiId");
      await refused(code, "migrateKeys", home.key, { migrationId: "m", apiId, keys });
      await refused(code, "getApi", home.key, { apiId });
      await refused(code, "deleteApi", home.key, { apiId });
    }
    expect(await ok("listKeys", home.key)).toHaveLength(1);
    expect(await ok("listIdentities", home.key)).toEqual([]);
  });

  everyProtocol("an API that was deleted", async ({ ok, refused, home }) => {
    const { apiId } = await ok("createApi", home.key, { name: "payments" });
    await ok("deleteApi", home.key, { apiId });
    for (const operation of ["getApi", "deleteApi", "createKey"] as const) {
      await refused("data/api_not_found", operation, home.key, { apiId });
    }
  });

  everyProtocol("an unknown role", async (scene) => {
    const { ok, refused, home } = scene;
    const code = "data/role_not_found";
    await ok("createRole", home.key, { name: "editor", permissions: ["documents.read"] });
    const { keyId } = await ok("createKey", home.key, { roles: ["editor"] });
    const before = await ok("getKey", home.key, { keyId });
    const requests: [OperationName, CallRequest][] = ["Editor", "role_00000000000000000000000000"].flatMap(
      (unknown): [OperationName, CallRequest][] => [
        ["createKey", { roles: ["editor", unknown], externalId: "user_1" }],
        ["updateKey", { keyId, name: "changed", roles: ["editor", unknown] }],
        ["addRoles", { keyId, roles: ["editor", unknown] }],
        ["setRoles", { keyId, roles: [unknown] }],
        ["migrateKeys", { migrationId: "m", keys: [{ hash: newHash() }, { hash: newHash(), roles: [unknown] }] }],
        ["getRole", { role: unknown }],
        ["setRolePermissions", { roleId: unknown, permissions: ["*"] }],
        ["deleteRole", { role: unknown }],
      ],
    );
    for (const [operation, request] of requests) {
      const { detail } = await refused(code, operation, home.key, request);
      expect(detail, operation).toMatch(/`(Editor|role_0+)`/);
    }
    expect(await ok("getKey", home.key, { keyId })).toEqual(before);
    expect(await ok("listKeys", home.key)).toHaveLength(2);
    expect(await ok("listIdentities", home.key)).toEqual([]);
  });

  everyProtocol("an unknown permission of the catalogue, and one that is in use", async ({ ok, refused, home }) => {
    await ok("createPermission", home.key, { name: "Read", slug: "documents.read" });
    for (const permission of ["documents.Read", "perm_00000000000000000000000000"]) {
      await refused("data/permission_not_found", "getPermission", home.key, { permission });
      await refused("data/permission_not_found", "deletePermission", home.key, { permission });
    }
    const { keyId } = await ok("createKey", home.key, { permissions: ["documents.read"] });
    await refused("data/permission_in_use", "deletePermission", home.key, { permission: "documents.read" });
    await ok("removePermissions", home.key, { keyId, permissions: ["documents.read"] });
    await ok("createRole", home.key, { name: "reader", permissions: ["documents.read"] });
    await refused("data/permission_in_use", "deletePermission", home.key, { permission: "documents.read" });
    await ok("deleteRole", home.key, { role: "reader" });
    await ok("deletePermission", home.key, { permission: "documents.read" });
    expect(await ok("listPermissions", home.key)).toEqual([]);
  });

  everyProtocol("a name that exists already", async ({ ok, refused, home }) => {
    await ok("createRole", home.key, { name: "editor", permissions: ["a"] });
    await refused("data/role_already_exists", "createRole", home.key, { name: "editor", permissions: ["b"] });
    await ok("createPermission", home.key, { name: "Read", slug: "a.b" });
    await refused("data/permission_already_exists", "createPermission", home.key, { name: "Other", slug: "a.b" });
    expect(await ok("getRole", home.key, { role: "editor" })).toMatchObject({ permissions: [{ slug: "a" }] });
    expect(await ok("listPermissions", home.key)).toMatchObject([{ name: "Read" }]);
  });
});

describe("numbers that only JSON can express", () => {
  const wrong: readonly [field: string, operation: OperationName, request: CallRequest][] = [
    ["credits.remaining", "createKey", { credits: { remaining: 1.5 } }],
    ["credits.remaining", "createKey", { credits: { remaining: 1e30 } }],
    ["credits.remaining", "createKey", { credits: { remaining: "many" } }],
    ["credits.refill.amount", "createKey", { credits: refilled({ ...daily, amount: 0.5 }) }],
    ["ratelimits[0].limit", "createKey", { ratelimits: [{ ...requestLimit, limit: 2.5 }] }],
    ["ratelimits[0].duration", "createKey", { ratelimits: [{ ...requestLimit, duration: 1000.5 }] }],
    ["ratelimits[0].autoApply", "createKey", { ratelimits: [{ ...requestLimit, autoApply: "yes" }] }],
    ["cost", "limit", { namespace: "a", identifier: "b", ...perMinute, cost: 1.5 }],
    ["limit", "setOverride", { namespace: "a", identifier: "b", ...perMinute, limit: 1.5 }],
  ];

  /** Sends JSON as it is, on the first HTTP route or on Connect's path. */
  async function post(path: string, key: string, body: unknown) {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const response = await fetch(contract.app.httpUrl + path, { method: "POST", headers, body: JSON.stringify(body) });
    return { status: response.status, text: await response.text() };
  }

  test.each(wrong)("%s of %s is refused over HTTP, and the field named: %j", async (field, operation, request) => {
    const scene = await openScene(contract.protocols.http, contract.clock);
    const refusal = await scene.refused(invalid, operation, scene.home.key, request);
    expect(locations(refusal)).toEqual([field]);
    expect(await scene.ok("listKeys", scene.home.key)).toHaveLength(1);
  });

  test.each(wrong.filter(([, operation]) => operation === "createKey"))(
    "%s of %s is refused over Connect, and the field named: %j",
    async (field, _operation, request) => {
      const scene = await openScene(contract.protocols.http, contract.clock);
      const { status, text } = await post("/latchkey.v1.KeysService/CreateKey", scene.home.key, request);
      expect(status).toBe(400);
      expect(JSON.parse(text)).toMatchObject({ code: "invalid_argument", message: expect.stringContaining(field) });
      expect(await scene.ok("listKeys", scene.home.key)).toHaveLength(1);
    },
  );

  test.each([
    ["an object", { limits: [] }],
    ["a list of texts", ["user_1"]],
    ["a list with null", [null]],
    ["null", null],
    ["an unknown field", [{ namespace: "a", identifier: "b", ...perMinute, async: true }]],
  ])("the body of multiLimit as %s is refused over HTTP", async (_what, body) => {
    const { home } = await openScene(contract.protocols.http, contract.clock);
    const { status, text } = await post("/v2/ratelimit.multiLimit", home.key, body);
    expect(status, text).toBe(400);
    expect(JSON.parse(text).error.errors[0].location).toMatch(/^body/);
  });
});
