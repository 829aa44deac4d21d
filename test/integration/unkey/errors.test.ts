// Every operation of the official Unkey client fails with the error class that its types promise.
import { randomUUID } from "node:crypto";
import { type Fetcher, HTTPClient, Unkey } from "@unkey/api";
import * as errors from "@unkey/api/models/errors";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type BehindProxy, openBehindProxy } from "../../support/behind-proxy.js";
import { openFileService, openFileSql, openRateLimitedService } from "../../support/file-service.js";

const { origin, key: rootKey } = await openFileService();
const unkey = clientOf(rootKey);
const {
  data: { apiId },
} = await unkey.apis.createApi({ name: "errors" });
const { key: powerless } = (await unkey.keys.createKey({ apiId })).data;

function clientOf(credential: string, serverURL = origin): Unkey {
  return new Unkey({ serverURL, rootKey: credential, retryConfig: { strategy: "none" } });
}

/** The requests of one operation. */
interface Requests {
  /** A valid request. Where an operation can fail with 404, it refers to something that does not exist. */
  readonly valid: unknown;
  readonly invalid: unknown;
  /** Whether the client has a class for 404 of this operation, and the valid request gets it. */
  readonly notFound?: true;
}

const keyId = "key_00000000000000000000000000";
const noKey = { keyId };
const noIdentity = { identity: "nobody" };
const limit = { namespace: "errors", identifier: "user_1", limit: 10, duration: 60_000 };
const noOverride = { namespace: "errors", identifier: "nobody" };
const hash = "A".repeat(43);

/** The operations that exist here, by the name of their group in the client. */
const operations: Record<string, Record<string, Requests>> = {
  apis: {
    createApi: { valid: { name: "x" }, invalid: { name: "" } },
    getApi: { valid: { apiId: "api_1" }, invalid: { apiId: "" }, notFound: true },
    deleteApi: { valid: { apiId: "api_1" }, invalid: { apiId: "" }, notFound: true },
    listKeys: { valid: { apiId: "api_1" }, invalid: { apiId, limit: 0 }, notFound: true },
  },
  keys: {
    createKey: { valid: { apiId: "api_1" }, invalid: { apiId, prefix: "not a prefix" }, notFound: true },
    getKey: { valid: noKey, invalid: { keyId: "" }, notFound: true },
    updateKey: { valid: { ...noKey, enabled: false }, invalid: { ...noKey, name: "" }, notFound: true },
    deleteKey: { valid: noKey, invalid: { keyId: "" }, notFound: true },
    rerollKey: { valid: { ...noKey, expiration: 0 }, invalid: { ...noKey, expiration: -1 }, notFound: true },
    verifyKey: { valid: { key: "unknown" }, invalid: { key: "unknown", permissions: "AND" } },
    whoami: { valid: { key: "unknown" }, invalid: { key: "" }, notFound: true },
    updateCredits: {
      valid: { ...noKey, operation: "set", value: 1 },
      invalid: { ...noKey, operation: "set", value: -1 },
      notFound: true,
    },
    addPermissions: {
      valid: { ...noKey, permissions: ["a"] },
      invalid: { ...noKey, permissions: ["not valid"] },
      notFound: true,
    },
    removePermissions: {
      valid: { ...noKey, permissions: ["a"] },
      invalid: { ...noKey, permissions: ["not valid"] },
      notFound: true,
    },
    setPermissions: {
      valid: { ...noKey, permissions: ["a"] },
      invalid: { ...noKey, permissions: ["not valid"] },
      notFound: true,
    },
    addRoles: { valid: { ...noKey, roles: ["a"] }, invalid: { ...noKey, roles: [""] }, notFound: true },
    removeRoles: { valid: { ...noKey, roles: ["a"] }, invalid: { ...noKey, roles: [""] }, notFound: true },
    setRoles: { valid: { ...noKey, roles: ["a"] }, invalid: { ...noKey, roles: [""] }, notFound: true },
    migrateKeys: {
      valid: { migrationId: "m", apiId: "api_1", keys: [{ hash }] },
      invalid: { migrationId: "m", apiId, keys: [{ hash: "not a hash" }] },
      notFound: true,
    },
  },
  identities: {
    createIdentity: { valid: { externalId: "new" }, invalid: { externalId: "" } },
    getIdentity: { valid: noIdentity, invalid: { identity: "" }, notFound: true },
    listIdentities: { valid: {}, invalid: { limit: 0 } },
    updateIdentity: { valid: { ...noIdentity, meta: {} }, invalid: { identity: "", meta: {} }, notFound: true },
    deleteIdentity: { valid: noIdentity, invalid: { identity: "" }, notFound: true },
  },
  permissions: {
    createPermission: { valid: { name: "x", slug: "x" }, invalid: { name: "x", slug: "not valid" } },
    getPermission: { valid: { permission: "nothing" }, invalid: { permission: "" }, notFound: true },
    listPermissions: { valid: {}, invalid: { limit: 101 } },
    deletePermission: { valid: { permission: "nothing" }, invalid: { permission: "" }, notFound: true },
    createRole: { valid: { name: "x" }, invalid: { name: "" } },
    getRole: { valid: { role: "nobody" }, invalid: { role: "" }, notFound: true },
    listRoles: { valid: {}, invalid: { limit: 101 } },
    setRolePermissions: {
      valid: { roleId: "nobody", permissions: [] },
      invalid: { roleId: "nobody", permissions: ["not valid"] },
      notFound: true,
    },
    // The client has no class for 404 here.
    deleteRole: { valid: { role: "nobody" }, invalid: { role: "" } },
  },
  ratelimit: {
    limit: { valid: limit, invalid: { ...limit, duration: 10 } },
    multiLimit: { valid: [limit], invalid: [{ ...limit, limit: 0 }] },
    setOverride: { valid: limit, invalid: { ...limit, limit: -1 } },
    getOverride: { valid: noOverride, invalid: { ...noOverride, identifier: "" }, notFound: true },
    listOverrides: { valid: { namespace: "errors" }, invalid: { namespace: "" } },
    deleteOverride: { valid: noOverride, invalid: { ...noOverride, identifier: "" }, notFound: true },
  },
};

type Groups = Record<string, Record<string, (request: unknown) => Promise<unknown>>>;

/** Calls an operation of the client by its name. */
async function call(client: Unkey, group: string, name: string, request: unknown): Promise<unknown> {
  return (client as unknown as Groups)[group]?.[name]?.(request);
}

const rows = Object.entries(operations).flatMap(([group, methods]) =>
  Object.entries(methods).map(([name, requests]) => [group, name, requests] as const),
);

it.each(Object.keys(operations))("the client has no operation of `%s` that is not tested here", (group) => {
  const offered = Object.getOwnPropertyNames(Object.getPrototypeOf((unkey as unknown as Groups)[group]));
  const tested = Object.keys(operations[group] ?? {});
  expect(offered.filter((name) => name !== "constructor").sort()).toEqual(tested.sort());
});

describe.each(rows)("%s.%s", (group, name, { valid, invalid, notFound }) => {
  it("fails with BadRequestErrorResponse for invalid input, and names the field", async () => {
    const error = await call(unkey, group, name, invalid).catch((error: unknown) => error);
    if (!(error instanceof errors.BadRequestErrorResponse)) return expect.fail(String(error));
    expect(error.error).toMatchObject({ status: 400, title: "Bad Request", detail: expect.any(String) });
    expect(error.error.errors).toContainEqual({ location: expect.any(String), message: expect.any(String) });
    expect(error.meta.requestId).toBe(error.headers.get("x-request-id"));
  });

  it("fails with UnauthorizedErrorResponse for an unknown root key", async () => {
    const error = call(clientOf("unkey_3ZZ7faUrkfv1YAhffAcnKW74"), group, name, valid);
    await expect(error).rejects.toBeInstanceOf(errors.UnauthorizedErrorResponse);
  });

  it("fails with ForbiddenErrorResponse for a key without scopes", async () => {
    const error = await call(clientOf(powerless), group, name, valid).catch((error: unknown) => error);
    if (!(error instanceof errors.ForbiddenErrorResponse)) return expect.fail(String(error));
    expect(error.error.type).toMatch(/\/authorization\/insufficient_permissions$/);
  });

  if (notFound) {
    it("fails with NotFoundErrorResponse for something that does not exist", async () => {
      await expect(call(unkey, group, name, valid)).rejects.toBeInstanceOf(errors.NotFoundErrorResponse);
    });
  }
});

describe("ConflictErrorResponse is the error of a create", () => {
  it.each([
    ["identities", "createIdentity", { externalId: "twice" }],
    ["permissions", "createPermission", { name: "Twice", slug: "twice" }],
    ["permissions", "createRole", { name: "twice" }],
  ])("%s.%s of what exists", async (group, name, request) => {
    await call(unkey, group, name, request);
    await expect(call(unkey, group, name, request)).rejects.toBeInstanceOf(errors.ConflictErrorResponse);
  });
});

const limited = await openRateLimitedService();
const exhausted = clientOf(limited.key, limited.origin);

describe("TooManyRequestsErrorResponse is the error above the rate limit of the workspace", () => {
  it.each(rows)("of %s.%s", async (group, name, { valid }) => {
    const error = await call(exhausted, group, name, valid).catch((error: unknown) => error);
    if (!(error instanceof errors.TooManyRequestsErrorResponse)) return expect.fail(String(error));
    expect(Number(error.headers.get("retry-after"))).toBeGreaterThan(0);
  });
});

describe("errors for which the client has no class are an APIError with the status and the envelope", () => {
  const typeOf = (error: errors.APIError) => String(JSON.parse(error.body).error.type);

  it.each<[string, () => Promise<unknown>]>([
    ["analytics", () => unkey.analytics.getVerifications({ query: "SELECT 1" })],
    ["deployments", () => unkey.deployments.getDeployment({ deploymentId: "d" })],
    ["projects", () => unkey.projects.getProject({ project: "p" })],
  ])("404 for an operation that does not exist here, such as %s: not NotFoundErrorResponse", async (_group, send) => {
    const error = await send().catch((error: unknown) => error);
    if (!(error instanceof errors.APIError)) return expect.fail(String(error));
    expect(error.statusCode).toBe(404);
    expect(typeOf(error)).toMatch(/\/application\/route_not_found$/);
  });

  it("409 for a permission that a key still has", async () => {
    await unkey.permissions.createPermission({ name: "Used", slug: "used" });
    await unkey.keys.createKey({ apiId, permissions: ["used"] });
    const error = await unkey.permissions.deletePermission({ permission: "used" }).catch((error: unknown) => error);
    if (!(error instanceof errors.APIError)) return expect.fail(String(error));
    expect(error.statusCode).toBe(409);
    expect(typeOf(error)).toMatch(/\/data\/permission_in_use$/);
  });

  it("404 for a role to delete that does not exist", async () => {
    const error = await unkey.permissions.deleteRole({ role: "nobody" }).catch((error: unknown) => error);
    if (!(error instanceof errors.APIError)) return expect.fail(String(error));
    expect(error.statusCode).toBe(404);
    expect(typeOf(error)).toMatch(/\/data\/role_not_found$/);
  });
});

describe("what this service refuses is a BadRequestErrorResponse that says why", () => {
  it.each<[string, () => Promise<unknown>, string]>([
    ["recoverable keys", () => unkey.keys.createKey({ apiId, recoverable: true }), "recoverable"],
    ["decrypt in getKey", () => unkey.keys.getKey({ keyId, decrypt: true }), "decrypt"],
    ["decrypt in listKeys", () => unkey.apis.listKeys({ apiId, decrypt: true }), "decrypt"],
    ["migrationId in verifyKey", () => unkey.keys.verifyKey({ key: "x", migrationId: "m" }), "migrationId"],
    ["an expiry in the past", () => unkey.keys.createKey({ apiId, expires: Date.now() - 1_000 }), "expires"],
    [
      "two rate limits with one name",
      () => unkey.identities.createIdentity({ externalId: "x", ratelimits: [quota("a"), quota("a")] }),
      "ratelimits",
    ],
    [
      "a window of 10 ms",
      () => unkey.keys.createKey({ apiId, ratelimits: [quota("a"), { ...quota("b"), duration: 10 }] }),
      "ratelimits[1].duration",
    ],
    ["negative credits", () => unkey.keys.createKey({ apiId, credits: { remaining: -1 } }), "credits.remaining"],
  ])("%s", async (_what, send, location) => {
    const error = await send().catch((error: unknown) => error);
    if (!(error instanceof errors.BadRequestErrorResponse)) return expect.fail(String(error));
    expect(error.error.errors).toEqual([{ location, message: expect.stringMatching(/\w/) }]);
  });

  function quota(name: string) {
    return { name, limit: 1, duration: 60_000 };
  }
});

const broken = await openFileService();
await openFileSql(broken.app.databaseUrl)`drop table audit_events`;

describe("InternalServerErrorResponse is the error of a defect", () => {
  const client = clientOf(broken.key, broken.origin);

  it.each([
    ["identities", "createIdentity", { externalId: "x" }],
    ["identities", "deleteIdentity", { identity: "x" }],
    ["permissions", "createRole", { name: "x" }],
  ])("of %s.%s", async (group, name, request) => {
    await expect(call(client, group, name, request)).rejects.toBeInstanceOf(errors.InternalServerErrorResponse);
  });
});

describe("a service whose database cannot be reached", () => {
  let service: BehindProxy;
  beforeAll(async () => {
    service = await openBehindProxy();
    service.proxy.cut();
  });
  afterAll(() => service.close());

  it("is an APIError with the status 503 and Retry-After", async () => {
    const client = clientOf(service.key, service.app.httpUrl);
    const refused = async () => {
      const error = await client.keys.verifyKey({ key: "x" }).catch((error: unknown) => error);
      return error instanceof errors.APIError ? [error.statusCode, error.headers.get("retry-after")] : String(error);
    };
    await expect.poll(refused, { timeout: 10_000 }).toEqual([503, "1"]);
  });
});

describe("the client retries a create whose response was lost", () => {
  /** A client that receives 503 instead of the first response, as from a proxy in between. */
  function clientThatLosesResponses(): Unkey {
    let lost = false;
    const fetcher: Fetcher = async (input, init) => {
      const response = await fetch(input, init);
      if (lost) return response;
      lost = true;
      await response.arrayBuffer();
      return new Response(null, { status: 503 });
    };
    return new Unkey({ serverURL: origin, rootKey, httpClient: new HTTPClient({ fetcher }) });
  }

  async function keysOf(api: string): Promise<string[]> {
    const { result } = await unkey.apis.listKeys({ apiId: api });
    return result.data.map((key) => key.keyId);
  }

  it("and creates one key with an Idempotency-Key", async () => {
    const api = (await unkey.apis.createApi({ name: "one" })).data.apiId;
    const headers = { "Idempotency-Key": randomUUID() };
    const { data } = await clientThatLosesResponses().keys.createKey({ apiId: api }, { headers });
    expect(await keysOf(api)).toEqual([data.keyId]);
  });

  it("and creates two keys without one", async () => {
    const api = (await unkey.apis.createApi({ name: "two" })).data.apiId;
    await clientThatLosesResponses().keys.createKey({ apiId: api });
    expect(await keysOf(api)).toHaveLength(2);
  });
});
