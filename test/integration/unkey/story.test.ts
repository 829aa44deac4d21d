// One story with the official client of Unkey, as it is on npm. Only its address is another one. The client validates
// every response against its own types, so a missing or mistyped field fails a test.
import { createHash, randomUUID } from "node:crypto";
import { Unkey } from "@unkey/api";
import type { KeyResponseData, V2KeysVerifyKeyRequestBody } from "@unkey/api/models/components";
import { BadRequestErrorResponse, NotFoundErrorResponse } from "@unkey/api/models/errors";
import { describe, expect, it } from "vitest";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { openFileService } from "../../support/file-service.js";

const { app, origin, key: rootKey } = await openFileService();
const unkey = new Unkey({ serverURL: origin, rootKey });

/** Long enough that no window ends within a test. */
const day = 86_400_000;

const meta = { requestId: expect.stringMatching(/^req_/) };
const nothing = { meta, data: {} };

/** The result for a key that does not exist. */
const unknown = { valid: false, code: "NOT_FOUND", permissions: [], roles: [], ratelimits: [] };

const {
  data: { apiId },
} = await unkey.apis.createApi({ name: "documents" });

/** A new key of the API, with these settings. */
async function createKey(settings: Partial<Parameters<typeof unkey.keys.createKey>[0]> = {}) {
  return (await unkey.keys.createKey({ apiId, ...settings })).data;
}

async function getKey(keyId: string): Promise<KeyResponseData> {
  return (await unkey.keys.getKey({ keyId })).data;
}

async function verify(key: string, request: Omit<V2KeysVerifyKeyRequestBody, "key"> = {}) {
  return (await unkey.keys.verifyKey({ key, ...request })).data;
}

describe("an API", () => {
  it("is returned by its identifier", async () => {
    expect(await unkey.apis.getApi({ apiId })).toEqual({ meta, data: { id: apiId, name: "documents" } });
  });

  it("lists its keys in pages, which the client follows", async () => {
    const own = (await unkey.apis.createApi({ name: "pages" })).data.apiId;
    const created: string[] = [];
    for (const name of ["a", "b", "c"]) created.push((await createKey({ apiId: own, name })).keyId);
    await createKey({ name: "of another API" });
    const pages: string[][] = [];
    for await (const { result } of await unkey.apis.listKeys({ apiId: own, limit: 2 })) {
      pages.push(result.data.map(({ keyId }) => keyId));
    }
    expect(pages).toEqual([created.slice(0, 2), created.slice(2)]);
  });

  it("lists the keys of one identity", async () => {
    const { keyId } = await createKey({ externalId: "user_list" });
    const { result } = await unkey.apis.listKeys({ apiId, externalId: "user_list", revalidateKeysCache: true });
    expect(result).toMatchObject({ data: [{ keyId }], pagination: { hasMore: false } });
  });

  it("takes its keys along when it is deleted", async () => {
    const own = (await unkey.apis.createApi({ name: "short-lived" })).data.apiId;
    const { keyId, key } = await createKey({ apiId: own });
    expect(await verify(key)).toMatchObject({ code: "VALID" });
    expect(await unkey.apis.deleteApi({ apiId: own })).toEqual(nothing);
    expect(await verify(key)).toMatchObject({ valid: false, code: "NOT_FOUND" });
    await expect(getKey(keyId)).rejects.toBeInstanceOf(NotFoundErrorResponse);
    await expect(unkey.apis.getApi({ apiId: own })).rejects.toBeInstanceOf(NotFoundErrorResponse);
  });
});

describe("permissions and roles", () => {
  const slug = "invoices:read";
  let permissionId: string;
  let roleId: string;

  it("a permission is created, returned by identifier and by slug, and listed", async () => {
    const settings = { name: "Read invoices", slug, description: "All invoices of the customer" };
    ({ permissionId } = (await unkey.permissions.createPermission(settings)).data);
    const permission = { id: permissionId, ...settings };
    expect(await unkey.permissions.getPermission({ permission: permissionId })).toEqual({ meta, data: permission });
    expect(await unkey.permissions.getPermission({ permission: slug })).toEqual({ meta, data: permission });
    const { result } = await unkey.permissions.listPermissions({ search: "invoices" });
    expect(result).toEqual({ meta, data: [permission], pagination: { hasMore: false } });
  });

  it("a role is created with permissions, returned by identifier and by name, and listed", async () => {
    const settings = { name: "accountant", description: "Works with invoices" };
    ({ roleId } = (await unkey.permissions.createRole({ ...settings, permissions: [slug] })).data);
    const role = { id: roleId, ...settings, permissions: [expect.objectContaining({ id: permissionId, slug })] };
    expect(await unkey.permissions.getRole({ role: roleId })).toEqual({ meta, data: role });
    expect(await unkey.permissions.getRole({ role: "accountant" })).toEqual({ meta, data: role });
    const { result } = await unkey.permissions.listRoles({ search: "account" });
    expect(result).toEqual({ meta, data: [role], pagination: { hasMore: false } });
  });

  it("a key has the permissions of its roles, from the moment they change", async () => {
    const { key } = await createKey({ roles: ["accountant"], permissions: ["invoices:list"] });
    const both = "invoices:list AND invoices:read";
    const { permissions, ...verified } = await verify(key, { permissions: both });
    expect(verified).toMatchObject({ code: "VALID", roles: ["accountant"] });
    expect(permissions?.sort()).toEqual(["invoices:list", "invoices:read"]);
    const replaced = await unkey.permissions.setRolePermissions({ roleId, permissions: ["invoices:write"] });
    expect(replaced.data.map((each) => each.slug)).toEqual(["invoices:write"]);
    expect(await verify(key, { permissions: both })).toMatchObject({ code: "INSUFFICIENT_PERMISSIONS" });
    expect(await verify(key, { permissions: "invoices:write" })).toMatchObject({ code: "VALID" });
    expect(await unkey.permissions.deleteRole({ role: "accountant" })).toEqual(nothing);
    expect(await verify(key, { permissions: "invoices:write" })).toMatchObject({ code: "INSUFFICIENT_PERMISSIONS" });
  });

  it("a permission is deleted", async () => {
    expect(await unkey.permissions.deletePermission({ permission: slug })).toEqual(nothing);
    const gone = unkey.permissions.getPermission({ permission: slug });
    await expect(gone).rejects.toBeInstanceOf(NotFoundErrorResponse);
  });
});

describe("an identity", () => {
  const externalId = "user_42";
  const ratelimits = [{ name: "requests", limit: 3, duration: day, autoApply: true }];
  let id: string;

  it("is created with rate limits, returned by either identifier, and listed", async () => {
    const created = await unkey.identities.createIdentity({ externalId, meta: { plan: "pro" }, ratelimits });
    id = created.data.identityId;
    const limits = [{ id: expect.stringMatching(/^rl_/), ...ratelimits[0] }];
    const identity = { id, externalId, meta: { plan: "pro" }, ratelimits: limits };
    expect(await unkey.identities.getIdentity({ identity: externalId })).toEqual({ meta, data: identity });
    expect(await unkey.identities.getIdentity({ identity: id })).toEqual({ meta, data: identity });
    const { result } = await unkey.identities.listIdentities({ search: externalId });
    expect(result).toEqual({ meta, data: [identity], pagination: { hasMore: false } });
  });

  it("has rate limits that its keys share", async () => {
    const keys = [(await createKey({ externalId })).key, (await createKey({ externalId })).key];
    const results: unknown[] = [];
    for (const key of [...keys, ...keys]) {
      const { code, ratelimits: states = [] } = await verify(key);
      results.push([code, states.map(({ name, remaining, exceeded }) => [name, remaining, exceeded])]);
    }
    expect(results).toEqual([
      ["VALID", [["requests", 2, false]]],
      ["VALID", [["requests", 1, false]]],
      ["VALID", [["requests", 0, false]]],
      ["RATE_LIMITED", [["requests", 0, true]]],
    ]);
  });

  it("is updated, and a verification returns its new meta", async () => {
    const { key } = await createKey({ externalId });
    const changes = { meta: { plan: "free" }, ratelimits: [{ name: "exports", limit: 10, duration: day }] };
    const updated = await unkey.identities.updateIdentity({ identity: id, ...changes });
    expect(updated.data).toMatchObject({ id, externalId, meta: { plan: "free" }, ratelimits: [{ name: "exports" }] });
    expect(await verify(key)).toMatchObject({ code: "VALID", identity: { id, externalId, meta: { plan: "free" } } });
    const cleared = await unkey.identities.updateIdentity({ identity: externalId, ratelimits: [] });
    expect(cleared.data.ratelimits ?? []).toEqual([]);
  });

  it("is deleted, and its keys stay valid without it", async () => {
    const { key } = await createKey({ externalId });
    expect(await unkey.identities.deleteIdentity({ identity: externalId })).toEqual({ meta });
    await expect(unkey.identities.getIdentity({ identity: id })).rejects.toBeInstanceOf(NotFoundErrorResponse);
    const verified = await verify(key);
    expect(verified).toMatchObject({ code: "VALID" });
    expect(verified.identity).toBeUndefined();
  });
});

describe("a key with all settings", () => {
  const name = "customer 7";
  const expires = Date.now() + 30 * day;
  const refill = { interval: "monthly", amount: 100, refillDay: 31 } as const;
  const requests = { name: "requests", limit: 1000, duration: day, autoApply: true };
  const exports = { name: "exports", limit: 2, duration: day, autoApply: false };
  let keyId: string;
  let key: string;
  let stored: KeyResponseData;

  it("is created, and its secret is returned once", async () => {
    await unkey.permissions.createRole({ name: "reader", permissions: ["documents:read"] });
    ({ keyId, key } = await createKey({
      prefix: "docs",
      name,
      externalId: "user_7",
      meta: { plan: "pro" },
      roles: ["reader"],
      permissions: ["documents:write"],
      expires,
      credits: { remaining: 100, refill },
      ratelimits: [requests, exports],
      enabled: true,
      recoverable: false,
    }));
    expect(key).toMatch(/^docs_/);
  });

  it("is returned by its identifier, by its secret and in lists, without the secret", async () => {
    stored = await getKey(keyId);
    expect(stored).toEqual({
      keyId,
      start: key.slice(0, "docs_".length + 4),
      enabled: true,
      name,
      meta: { plan: "pro" },
      createdAt: expect.any(Number),
      updatedAt: expect.any(Number),
      expires,
      permissions: ["documents:write"],
      roles: ["reader"],
      credits: { remaining: 100, refill },
      identity: { id: expect.stringMatching(/^id_/), externalId: "user_7", meta: {}, ratelimits: [] },
      ratelimits: expect.arrayContaining([expect.objectContaining(requests), expect.objectContaining(exports)]),
    });
    expect((await unkey.keys.whoami({ key })).data).toEqual(stored);
    const { result } = await unkey.apis.listKeys({ apiId, externalId: "user_7" });
    expect(result.data).toEqual([stored]);
  });

  it("is verified with permissions, credits and rate limits", async () => {
    const verified = await verify(key, {
      permissions: "documents:read AND (documents:write OR admin)",
      credits: { cost: 3 },
      ratelimits: [{ name: "exports" }],
      tags: ["path=/documents"],
    });
    expect({ ...verified, permissions: verified.permissions?.sort() }).toEqual({
      valid: true,
      code: "VALID",
      keyId,
      name,
      meta: { plan: "pro" },
      expires,
      enabled: true,
      permissions: ["documents:read", "documents:write"],
      roles: ["reader"],
      identity: expect.objectContaining({ id: stored.identity?.id, externalId: "user_7" }),
      credits: 97,
      ratelimits: [
        { ...exports, id: expect.any(String), remaining: 1, exceeded: false, reset: expect.any(Number) },
        { ...requests, id: expect.any(String), remaining: 999, exceeded: false, reset: expect.any(Number) },
      ],
    });
    for (const { reset } of verified.ratelimits ?? []) expect(reset).toBeGreaterThan(expires - 30 * day);
  });

  it("is RATE_LIMITED above a limit that the request names, and spends no credits then", async () => {
    const exported = { ratelimits: [{ name: "exports" }] };
    expect(await verify(key, exported)).toMatchObject({ code: "VALID", credits: 96 });
    const refused = await verify(key, exported);
    expect(refused).toMatchObject({ valid: false, code: "RATE_LIMITED", keyId, identity: { externalId: "user_7" } });
    expect(refused.ratelimits).toContainEqual(expect.objectContaining({ name: "exports", exceeded: true }));
    expect(await verify(key)).toMatchObject({ code: "VALID", credits: 95 });
  });

  it("can be limited by a limit that only the request defines", async () => {
    const once = { ratelimits: [{ name: "reports", limit: 1, duration: day }], credits: { cost: 0 } };
    expect(await verify(key, once)).toMatchObject({ code: "VALID" });
    expect(await verify(key, once)).toMatchObject({ code: "RATE_LIMITED" });
  });

  it("has INSUFFICIENT_PERMISSIONS without a required permission", async () => {
    const refused = await verify(key, { permissions: "admin" });
    expect(refused).toMatchObject({ valid: false, code: "INSUFFICIENT_PERMISSIONS", keyId, name, enabled: true });
  });

  it("is USAGE_EXCEEDED if it has fewer credits than the request costs, and keeps them", async () => {
    const refused = await verify(key, { credits: { cost: 96 } });
    expect(refused).toMatchObject({ valid: false, code: "USAGE_EXCEEDED", keyId, credits: 95 });
    expect(await verify(key, { credits: { cost: 95 } })).toMatchObject({ code: "VALID", credits: 0 });
    expect(await verify(key)).toMatchObject({ code: "USAGE_EXCEEDED", credits: 0 });
    expect(await verify(key, { credits: { cost: 0 } })).toMatchObject({ code: "VALID", credits: 0 });
  });

  it("is NOT_FOUND if it is not a key of the workspace, also if it is foreign or very long", async () => {
    const { key: foreign } = await createWorkspace(origin, "another");
    const others = ["sk_live_51H8x", "eyJhbGciOiJIUzI1NiJ9.e30.abc", "x".repeat(10_000), " ", "ключ"];
    for (const secret of [foreign, `${key}x`, ...others]) expect(await verify(secret)).toEqual(unknown);
  });

  it("is DISABLED while it is disabled", async () => {
    expect(await unkey.keys.updateKey({ keyId, enabled: false })).toEqual(nothing);
    expect(await verify(key)).toMatchObject({ valid: false, code: "DISABLED", keyId, enabled: false });
    expect(await unkey.keys.updateKey({ keyId, enabled: true })).toEqual(nothing);
    expect(await verify(key, { credits: { cost: 0 } })).toMatchObject({ code: "VALID" });
  });

  it.each<[string, Omit<Parameters<typeof unkey.keys.updateKey>[0], "keyId">, Partial<KeyResponseData>]>([
    ["name", { name: "renamed" }, { name: "renamed" }],
    ["name to null", { name: null }, { name: undefined }],
    ["meta", { meta: { plan: "free", seats: 3 } }, { meta: { plan: "free", seats: 3 } }],
    ["meta to null", { meta: null }, { meta: undefined }],
    ["expires", { expires: expires + 1_000 }, { expires: expires + 1_000 }],
    ["expires to null", { expires: null }, { expires: undefined }],
    ["credits.remaining", { credits: { remaining: 5 } }, { credits: { remaining: 5, refill } }],
    ["credits.refill to null", { credits: { refill: null } }, { credits: { remaining: 5 } }],
    [
      "credits.refill",
      { credits: { refill: { interval: "daily", amount: 50 } } },
      { credits: { remaining: 5, refill: { interval: "daily", amount: 50 } } },
    ],
    ["credits.remaining to null", { credits: { remaining: null } }, { credits: undefined }],
    ["credits as a whole", { credits: { remaining: 9, refill } }, { credits: { remaining: 9, refill } }],
    ["credits to null", { credits: null }, { credits: undefined }],
    ["roles", { roles: [] }, { roles: [] }],
    ["permissions", { permissions: ["a", "b:c"] }, { permissions: ["a", "b:c"] }],
    ["permissions to none", { permissions: [] }, { permissions: [] }],
  ])("is updated: %s", async (_field, change, expected) => {
    expect(await unkey.keys.updateKey({ keyId, ...change })).toEqual(nothing);
    const key = await getKey(keyId);
    const changed = Object.keys(expected).map((name) => [name, key[name as keyof KeyResponseData]]);
    expect(Object.fromEntries(changed)).toEqual(expected);
  });

  it("is updated: ratelimits, and a limit that keeps its name and duration keeps its counter", async () => {
    await unkey.keys.updateKey({ keyId, ratelimits: [{ ...exports, limit: 3 }] });
    const counted = await verify(key, { ratelimits: [{ name: "exports" }] });
    expect(counted.ratelimits).toEqual([expect.objectContaining({ name: "exports", limit: 3, remaining: 0 })]);
    await unkey.keys.updateKey({ keyId, ratelimits: [] });
    expect((await getKey(keyId)).ratelimits ?? []).toEqual([]);
  });

  it("is updated: externalId, which also creates the identity, and to null", async () => {
    await unkey.keys.updateKey({ keyId, externalId: "user_8" });
    expect(await verify(key)).toMatchObject({ code: "VALID", identity: { externalId: "user_8" } });
    await unkey.keys.updateKey({ keyId, externalId: null });
    expect((await verify(key)).identity).toBeUndefined();
  });

  it("is updated: an expiry in the past ends the key, and null revives it", async () => {
    await unkey.keys.updateKey({ keyId, expires: 1 });
    expect(await verify(key)).toMatchObject({ valid: false, code: "EXPIRED", keyId, expires: 1 });
    await unkey.keys.updateKey({ keyId, expires: null });
    expect(await verify(key)).toMatchObject({ code: "VALID" });
  });

  it("is replaced: the old secret ends, and the new key has the same settings", async () => {
    await unkey.keys.updateKey({ keyId, name, permissions: ["documents:write"], credits: { remaining: 7 } });
    const { data: graceful } = await unkey.keys.rerollKey({ keyId, expiration: day });
    expect(await verify(key, { credits: { cost: 0 } })).toMatchObject({ code: "VALID", keyId });
    const { data: next } = await unkey.keys.rerollKey({ keyId: graceful.keyId, expiration: 0 });
    expect(await verify(graceful.key)).toMatchObject({ valid: false, code: "EXPIRED" });
    expect(next.key).toMatch(/^docs_/);
    expect(await verify(next.key, { permissions: "documents:write" })).toMatchObject({ code: "VALID", name });
    ({ keyId, key } = next);
  });

  it("is deleted permanently", async () => {
    expect(await unkey.keys.deleteKey({ keyId, permanent: true })).toEqual(nothing);
    expect(await verify(key)).toEqual(unknown);
    await expect(getKey(keyId)).rejects.toBeInstanceOf(NotFoundErrorResponse);
    await expect(unkey.keys.whoami({ key })).rejects.toBeInstanceOf(NotFoundErrorResponse);
  });
});

describe("credits", () => {
  it("are set, incremented and decremented, never below zero, and removed with null", async () => {
    const { keyId, key } = await createKey();
    const change = async (operation: "set" | "increment" | "decrement", value: number | null) =>
      (await unkey.keys.updateCredits({ keyId, operation, value })).data;
    await expect(change("increment", 1)).rejects.toBeInstanceOf(BadRequestErrorResponse);
    expect(await change("set", 10)).toEqual({ remaining: 10 });
    expect(await change("increment", 5)).toEqual({ remaining: 15 });
    expect(await verify(key)).toMatchObject({ code: "VALID", credits: 14 });
    expect(await change("decrement", 4)).toEqual({ remaining: 10 });
    expect(await change("decrement", 1_000)).toEqual({ remaining: 0 });
    expect(await verify(key)).toMatchObject({ code: "USAGE_EXCEEDED", credits: 0 });
    expect(await change("set", null)).toEqual({ remaining: null });
    const unlimited = await verify(key);
    expect(unlimited).toMatchObject({ code: "VALID" });
    expect(unlimited.credits).toBeUndefined();
  });

  it("can be null at creation: the key needs none", async () => {
    const { key } = await createKey({ credits: { remaining: null } });
    expect((await verify(key)).code).toBe("VALID");
  });
});

describe("the permissions and roles of a key", () => {
  const slugs = (permissions: { slug: string }[]) => permissions.map(({ slug }) => slug).sort();
  const names = (roles: { name: string }[]) => roles.map(({ name }) => name).sort();

  it("permissions are added, removed and replaced", async () => {
    const { keyId, key } = await createKey({ permissions: ["a"] });
    expect(slugs((await unkey.keys.addPermissions({ keyId, permissions: ["a", "b:c"] })).data)).toEqual(["a", "b:c"]);
    expect(slugs((await unkey.keys.removePermissions({ keyId, permissions: ["a"] })).data)).toEqual(["b:c"]);
    expect(await verify(key, { permissions: "a" })).toMatchObject({ code: "INSUFFICIENT_PERMISSIONS" });
    expect(slugs((await unkey.keys.setPermissions({ keyId, permissions: ["d", "e"] })).data)).toEqual(["d", "e"]);
    expect(await verify(key, { permissions: "d AND e" })).toMatchObject({ code: "VALID" });
    expect((await unkey.keys.setPermissions({ keyId, permissions: [] })).data).toEqual([]);
  });

  it("roles are added, removed and replaced", async () => {
    for (const name of ["writer", "editor"]) await unkey.permissions.createRole({ name, permissions: [name] });
    const { keyId, key } = await createKey();
    expect(names((await unkey.keys.addRoles({ keyId, roles: ["writer"] })).data)).toEqual(["writer"]);
    expect(await verify(key, { permissions: "writer" })).toMatchObject({ code: "VALID" });
    expect(names((await unkey.keys.setRoles({ keyId, roles: ["editor"] })).data)).toEqual(["editor"]);
    expect(await verify(key, { permissions: "writer" })).toMatchObject({ code: "INSUFFICIENT_PERMISSIONS" });
    expect((await unkey.keys.removeRoles({ keyId, roles: ["editor"] })).data).toEqual([]);
    await expect(unkey.keys.addRoles({ keyId, roles: ["nobody"] })).rejects.toBeInstanceOf(NotFoundErrorResponse);
  });
});

describe("the limiter", () => {
  const namespace = "email.send";
  const limit = { namespace, limit: 2, duration: day };

  it("counts an identifier up to its limit", async () => {
    const results: unknown[] = [];
    for (let use = 0; use < 3; use++) {
      const { success, remaining, reset } = (await unkey.ratelimit.limit({ ...limit, identifier: "user_1" })).data;
      expect(reset).toBeGreaterThan(Date.now());
      results.push([success, remaining]);
    }
    expect(results).toEqual([
      [true, 1],
      [true, 0],
      [false, 0],
    ]);
    const other = await unkey.ratelimit.limit({ ...limit, identifier: "user_2", cost: 2 });
    expect(other.data).toMatchObject({ success: true, limit: 2, remaining: 0 });
  });

  it("counts against several limits at once: all, or none", async () => {
    const first = { ...limit, identifier: "team_1" };
    const second = { namespace: "email.total", limit: 1, duration: day, identifier: "all" };
    const passed = await unkey.ratelimit.multiLimit([first, second]);
    expect(passed.data).toMatchObject({
      passed: true,
      limits: [
        { namespace, identifier: "team_1", passed: true, limit: 2, remaining: 1 },
        { namespace: "email.total", identifier: "all", passed: true, limit: 1, remaining: 0 },
      ],
    });
    const refused = await unkey.ratelimit.multiLimit([first, second]);
    expect(refused.data).toMatchObject({ passed: false, limits: [{ passed: true, remaining: 1 }, { passed: false }] });
  });

  it("has overrides with wildcards, which are set, returned, listed, applied and deleted", async () => {
    const override = { namespace, identifier: "premium_*", limit: 5, duration: day };
    const { overrideId } = (await unkey.ratelimit.setOverride(override)).data;
    const { identifier, limit: raised, duration } = override;
    const stored = { overrideId, identifier, limit: raised, duration };
    expect((await unkey.ratelimit.getOverride({ namespace, identifier })).data).toEqual(stored);
    const { result } = await unkey.ratelimit.listOverrides({ namespace });
    expect(result).toEqual({ meta, data: [stored], pagination: { hasMore: false } });
    const applied = await unkey.ratelimit.limit({ ...limit, identifier: "premium_7" });
    expect(applied.data).toMatchObject({ success: true, limit: 5, remaining: 4, overrideId });
    expect(await unkey.ratelimit.deleteOverride({ namespace, identifier })).toEqual(nothing);
    const without = await unkey.ratelimit.limit({ ...limit, identifier: "premium_8" });
    expect(without.data).toMatchObject({ limit: 2, remaining: 1 });
    expect(without.data.overrideId).toBeUndefined();
  });

  it("refuses every use of an identifier whose override is 0", async () => {
    await unkey.ratelimit.setOverride({ namespace, identifier: "banned", limit: 0, duration: day });
    expect((await unkey.ratelimit.limit({ ...limit, identifier: "banned" })).data).toMatchObject({ success: false });
  });
});

describe("imported keys", () => {
  const hashOf = (secret: string) => createHash("sha256").update(secret).digest("base64");

  it("are verified by their old secrets, with the imported settings", async () => {
    const secrets = [`sk_live_${randomUUID()}`, `${randomUUID()}.${"x".repeat(400)}`];
    const [first = "", second = ""] = secrets;
    await unkey.permissions.createRole({ name: "imported", permissions: ["documents:import"] });
    const { data } = await unkey.keys.migrateKeys({
      migrationId: "from-unkey",
      apiId,
      keys: [
        {
          hash: hashOf(first),
          name: "customer 9",
          externalId: "user_9",
          meta: { plan: "pro" },
          roles: ["imported"],
          permissions: ["documents:read"],
          expires: Date.now() + day,
          credits: { remaining: 3, refill: { interval: "daily", amount: 3 } },
          ratelimits: [{ name: "requests", limit: 10, duration: day, autoApply: true }],
        },
        { hash: hashOf(second), enabled: false },
      ],
    });
    expect(data.failed).toEqual([]);
    expect(data.migrated.map(({ hash }) => hash)).toEqual(secrets.map(hashOf));
    const permissions = "documents:read AND documents:import";
    expect(await verify(first, { permissions })).toMatchObject({
      valid: true,
      code: "VALID",
      keyId: data.migrated[0]?.keyId,
      name: "customer 9",
      meta: { plan: "pro" },
      identity: { externalId: "user_9" },
      roles: ["imported"],
      credits: 2,
      ratelimits: [{ name: "requests", remaining: 9 }],
    });
    expect(await verify(second)).toMatchObject({ valid: false, code: "DISABLED", keyId: data.migrated[1]?.keyId });
    expect((await unkey.keys.whoami({ key: second })).data.keyId).toBe(data.migrated[1]?.keyId);
  });

  it("that exist already are returned as failed, and the others are imported", async () => {
    const hashes = [randomUUID(), randomUUID()].map(hashOf);
    const [existing = "", added = ""] = hashes;
    await unkey.keys.migrateKeys({ migrationId: "first", apiId, keys: [{ hash: existing }] });
    const { data } = await unkey.keys.migrateKeys({
      migrationId: "second",
      apiId,
      keys: hashes.map((hash) => ({ hash })),
    });
    expect(data).toEqual({ migrated: [{ hash: added, keyId: expect.any(String) }], failed: [existing] });
  });
});

describe("a retried create", () => {
  it("returns the first key again with the same Idempotency-Key", async () => {
    const create = (headers: Record<string, string>) => unkey.keys.createKey({ apiId, name: "once" }, { headers });
    const headers = { "Idempotency-Key": randomUUID() };
    const first = await create(headers);
    expect((await create(headers)).data).toEqual(first.data);
    expect((await create({ "Idempotency-Key": randomUUID() })).data.keyId).not.toBe(first.data.keyId);
  });
});

// Last, because it advances the clock for all keys.
it("a key is EXPIRED after its expiry", async () => {
  const expires = Date.now() + 3_600_000;
  const { keyId, key } = await createKey({ expires });
  expect(await verify(key)).toMatchObject({ code: "VALID", expires });
  await app.advance(2 * 3_600_000);
  expect(await verify(key)).toMatchObject({ valid: false, code: "EXPIRED", keyId, expires });
});
