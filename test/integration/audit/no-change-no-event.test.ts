import { randomBytes } from "node:crypto";
import { beforeAll, expect, it } from "vitest";
import { allEvents, succeed } from "../../support/calls.js";
import { createWorkspace, expectError, expectSuccess, post } from "../../support/clients/http-requests.js";
import { openFileService, openFileSql } from "../../support/file-service.js";
import { operatorKey } from "../../support/harness.js";

const { app, origin, workspaceId, key } = await openFileService();
const sql = openFileSql(app.databaseUrl);
let keyId: string;
let weak: string;
let foreignKeyId: string;
let apiId: string;

beforeAll(async () => {
  ({ keyId } = await succeed<{ keyId: string }>(origin, "keys.createKey", key, { scopes: ["*"] }));
  const scopes = ["keys.create", "keys.update", "audit.read"];
  weak = (await succeed<{ key: string }>(origin, "keys.createKey", key, { scopes })).key;
  const foreign = await createWorkspace(origin);
  foreignKeyId = (await succeed<{ keyId: string }>(origin, "keys.createKey", foreign.key, {})).keyId;
  await succeed(origin, "identities.createIdentity", key, { externalId: "user" });
  ({ apiId } = await succeed<{ apiId: string }>(origin, "apis.createApi", key, { name: "payments" }));
  await succeed(origin, "permissions.createRole", key, { name: "editor", permissions: ["a"] });
  await succeed(origin, "permissions.createPermission", key, { name: "A", slug: "a" });
  await succeed(origin, "permissions.createPermission", key, { name: "unused", slug: "unused" });
  await succeed(origin, "ratelimit.setOverride", key, { ...override, ...perMinute });
});

const override = { namespace: "email.send", identifier: "user" };
const perMinute = { limit: 5, duration: 60_000 };
const imported = { migrationId: "m", keys: [{ hash: randomBytes(32).toString("base64"), externalId: "unknown" }] };

/** All stored rows, without the last-used times of keys. */
async function stored(): Promise<unknown> {
  const tables = ["workspaces", "identities", "apis", "roles", "permissions", "rate_limit_overrides", "key_credits"];
  const rows = await Promise.all(
    [...tables, "idempotency_records", "cluster_state"].map((table) => sql`select * from ${sql(table)} order by 1`),
  );
  const keys = await sql`select to_jsonb(keys) - 'last_used_at' as row from keys order by key_id`;
  return structuredClone({ others: rows.map((each) => [...each]), keys: [...keys] });
}

const addRole = (of: string) => ({ keyId: of, roles: ["editor"] });
const credit = (of: string) => ({ keyId: of, operation: "set", value: 5 });
const increment = (of: string) => ({ keyId: of, operation: "increment", value: 5 });

const unknownKeyId = "key_00000000000000000000000000";
type Case = [what: string, operation: string, credential: () => string | undefined, body: () => object, status: number];
const cases: Case[] = [
  ["no credential", "keys.createKey", () => undefined, () => ({}), 401],
  ["an unknown credential", "keys.createKey", () => `${key.slice(0, -1)}!`, () => ({}), 401],
  ["a missing scope", "keys.deleteKey", () => weak, () => ({ keyId }), 403],
  ["a key for the operator's operation", "workspaces.disableWorkspace", () => key, () => ({ workspaceId }), 403],
  [
    "creating a key with more scopes than the caller",
    "keys.createKey",
    () => weak,
    () => ({ scopes: ["*"], externalId: "x" }),
    403,
  ],
  ["granting more scopes than the caller has", "keys.updateKey", () => weak, () => ({ keyId, scopes: ["*"] }), 403],
  [
    "rerolling a key with more scopes than the caller",
    "keys.rerollKey",
    () => weak,
    () => ({ keyId, expiration: 0 }),
    403,
  ],
  ["an invalid field", "keys.createKey", () => key, () => ({ prefix: "not a prefix", externalId: "x" }), 400],
  ["a field that cannot be cleared", "keys.updateKey", () => key, () => ({ keyId, enabled: null, name: "x" }), 400],
  ["an unknown identity", "keys.createKey", () => key, () => ({ identityId: "id_none" }), 404],
  ["an unknown identity for a key", "keys.updateKey", () => key, () => ({ keyId, identityId: "id_none" }), 404],
  ["an unknown key to update", "keys.updateKey", () => key, () => ({ keyId: unknownKeyId, externalId: "x" }), 404],
  ["an unknown key to reroll", "keys.rerollKey", () => key, () => ({ keyId: unknownKeyId, expiration: 0 }), 404],
  ["another workspace's key to delete", "keys.deleteKey", () => key, () => ({ keyId: foreignKeyId }), 404],
  ["another workspace's key to update", "keys.updateKey", () => key, () => ({ keyId: foreignKeyId, name: "x" }), 404],
  ["an unknown identity to update", "identities.updateIdentity", () => key, () => ({ externalId: "x", meta: {} }), 404],
  ["an unknown identity to delete", "identities.deleteIdentity", () => key, () => ({ externalId: "x" }), 404],
  ["an externalId that exists", "identities.createIdentity", () => key, () => ({ externalId: "user" }), 409],
  ["an unknown API", "keys.createKey", () => key, () => ({ apiId: "api_none", externalId: "x" }), 404],
  ["an unknown role", "keys.createKey", () => key, () => ({ roles: ["none"], externalId: "x" }), 404],
  ["an unknown role for a key", "keys.setRoles", () => key, () => ({ keyId, roles: ["none"] }), 404],
  ["another workspace's key to add a role to", "keys.addRoles", () => key, () => addRole(foreignKeyId), 404],
  ["another workspace's key to credit", "keys.updateCredits", () => key, () => credit(foreignKeyId), 404],
  ["a key with more scopes than the caller, to credit", "keys.updateCredits", () => weak, () => credit(keyId), 403],
  ["a key with more scopes, to add a role to", "keys.addRoles", () => weak, () => addRole(keyId), 403],
  ["an increment of a key without credits", "keys.updateCredits", () => key, () => increment(keyId), 400],
  ["an import with an unknown API", "keys.migrateKeys", () => key, () => ({ ...imported, apiId: "api_none" }), 404],
  ["an API without the scope", "apis.createApi", () => weak, () => ({ name: "x" }), 403],
  ["an unknown API to delete", "apis.deleteApi", () => key, () => ({ apiId: "api_none" }), 404],
  ["a role that exists", "permissions.createRole", () => key, () => ({ name: "editor" }), 409],
  ["an unknown role to change", "permissions.setRolePermissions", () => key, () => ({ roleId: "none" }), 404],
  ["an unknown role to delete", "permissions.deleteRole", () => key, () => ({ role: "none" }), 404],
  ["a permission that exists", "permissions.createPermission", () => key, () => ({ name: "A", slug: "a" }), 409],
  ["a permission that is in use", "permissions.deletePermission", () => key, () => ({ permission: "a" }), 409],
  ["an unknown permission", "permissions.deletePermission", () => key, () => ({ permission: "none" }), 404],
  ["an override that is invalid", "ratelimit.setOverride", () => key, () => ({ ...override, limit: -1 }), 400],
  ["an unknown override", "ratelimit.deleteOverride", () => key, () => ({ ...override, identifier: "none" }), 404],
  ["an unknown workspace", "workspaces.enableWorkspace", () => operatorKey, () => ({ workspaceId: "ws_none" }), 404],
];

it.each(cases)(
  "a refused call changes nothing and writes no audit event: %s",
  async (_what, operation, credential, body, status) => {
    const before = { events: await allEvents(origin), stored: await stored() };
    const response = await post(origin, `/v2/${operation}`, credential(), body());
    expect(response, response.text).toMatchObject({ status });
    expect({ events: await allEvents(origin), stored: await stored() }).toEqual(before);
  },
);

it("reading and verifying writes no audit event", async () => {
  const before = await allEvents(origin);
  const reads: [string, string, object][] = [
    ["keys.listKeys", key, {}],
    ["keys.getKey", key, { keyId }],
    ["keys.whoami", key, { key: weak }],
    ["keys.verifyKey", key, { key: weak }],
    ["keys.getUsage", key, { keyId }],
    ["identities.getUsage", key, { externalId: "user" }],
    ["apis.getApi", key, { apiId }],
    ["apis.listApis", key, {}],
    ["permissions.getPermission", key, { permission: "a" }],
    ["permissions.listPermissions", key, {}],
    ["permissions.getRole", key, { role: "editor" }],
    ["permissions.listRoles", key, {}],
    ["ratelimit.getOverride", key, override],
    ["ratelimit.listOverrides", key, { namespace: override.namespace }],
    ["ratelimit.limit", key, { ...override, ...perMinute }],
    ["identities.getIdentity", key, { externalId: "user" }],
    ["identities.listIdentities", key, {}],
    ["workspaces.getWorkspace", operatorKey, { workspaceId }],
    ["workspaces.listWorkspaces", operatorKey, {}],
    ["workspaces.listAuditEvents", key, {}],
  ];
  for (const [operation, credential, body] of reads)
    expectSuccess(await post(origin, `/v2/${operation}`, credential, body));
  expect(await allEvents(origin)).toEqual(before);
});

it.each([
  ["keys.createKey", () => key, () => ({ name: "x" })],
  ["keys.createKey", () => key, () => ({ externalId: "unknown" })],
  ["keys.updateKey", () => key, () => ({ keyId, enabled: false })],
  ["keys.updateKey", () => key, () => ({ keyId, externalId: "unknown" })],
  ["keys.deleteKey", () => key, () => ({ keyId })],
  ["keys.rerollKey", () => key, () => ({ keyId, expiration: 0 })],
  ["identities.createIdentity", () => key, () => ({ externalId: "new" })],
  ["identities.updateIdentity", () => key, () => ({ externalId: "user", meta: { a: 1 } })],
  ["identities.deleteIdentity", () => key, () => ({ externalId: "user" })],
  ["keys.createKey", () => key, () => ({ credits: { remaining: 5 } })],
  ["keys.updateCredits", () => key, () => credit(keyId)],
  ["keys.updateKey", () => key, () => ({ keyId, credits: { remaining: 5 } })],
  ["keys.addPermissions", () => key, () => ({ keyId, permissions: ["b"] })],
  ["keys.setPermissions", () => key, () => ({ keyId, permissions: ["b"] })],
  ["keys.addRoles", () => key, () => addRole(keyId)],
  ["keys.setRoles", () => key, () => addRole(keyId)],
  ["keys.migrateKeys", () => key, () => imported],
  ["apis.createApi", () => key, () => ({ name: "new" })],
  ["apis.deleteApi", () => key, () => ({ apiId })],
  ["permissions.createPermission", () => key, () => ({ name: "new", slug: "new" })],
  ["permissions.deletePermission", () => key, () => ({ permission: "unused" })],
  ["permissions.createRole", () => key, () => ({ name: "new" })],
  ["permissions.setRolePermissions", () => key, () => ({ roleId: "editor", permissions: ["b"] })],
  ["permissions.deleteRole", () => key, () => ({ role: "editor" })],
  ["ratelimit.setOverride", () => key, () => ({ ...override, limit: 9, duration: 60_000 })],
  ["ratelimit.setOverride", () => key, () => ({ ...override, ...perMinute, identifier: "new" })],
  ["ratelimit.deleteOverride", () => key, () => override],
  ["workspaces.createWorkspace", () => operatorKey, () => ({ name: "new" })],
  ["workspaces.disableWorkspace", () => operatorKey, () => ({ workspaceId, reason: "OWNER_REQUEST" })],
  ["workspaces.enableWorkspace", () => operatorKey, () => ({ workspaceId })],
  ["workspaces.updateWorkspace", () => operatorKey, () => ({ workspaceId, name: "renamed" })],
])(
  "%s is rolled back if its audit event cannot be written, and the error does not reveal the cause",
  async (operation, credential, body) => {
    const before = await stored();
    await sql`alter table audit_events rename to audit_events_away`;
    try {
      const response = await post(origin, `/v2/${operation}`, credential(), body());
      expectError(response, 500, "application/unexpected_error");
      expect(response.text).not.toMatch(/audit|relation|42P01|postgres|"key"/i);
    } finally {
      await sql`alter table audit_events_away rename to audit_events`;
    }
    expect(await stored()).toEqual(before);
  },
);
