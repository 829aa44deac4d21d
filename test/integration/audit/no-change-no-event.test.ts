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

beforeAll(async () => {
  ({ keyId } = await succeed<{ keyId: string }>(origin, "keys.createKey", key, { scopes: ["*"] }));
  const scopes = ["keys.create", "keys.update", "audit.read"];
  weak = (await succeed<{ key: string }>(origin, "keys.createKey", key, { scopes })).key;
  const foreign = await createWorkspace(origin);
  foreignKeyId = (await succeed<{ keyId: string }>(origin, "keys.createKey", foreign.key, {})).keyId;
  await succeed(origin, "identities.createIdentity", key, { externalId: "user" });
});

/** All stored rows, without the last-used times of keys. */
async function stored(): Promise<unknown> {
  const [workspaces, identities, lease] = await Promise.all([
    sql`select * from workspaces order by 1`,
    sql`select * from identities order by 1`,
    sql`select * from cluster_state`,
  ]);
  const keys = await sql`select to_jsonb(keys) - 'last_used_at' as row from keys order by key_id`;
  return structuredClone({
    workspaces: [...workspaces],
    identities: [...identities],
    keys: [...keys],
    lease: [...lease],
  });
}

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
  ["workspaces.createWorkspace", () => operatorKey, () => ({ name: "new" })],
  ["workspaces.disableWorkspace", () => operatorKey, () => ({ workspaceId, reason: "OWNER_REQUEST" })],
  ["workspaces.enableWorkspace", () => operatorKey, () => ({ workspaceId })],
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
