import { randomBytes } from "node:crypto";
import { beforeEach, describe, expect, it } from "vitest";
import { hashSecret } from "../../../src/keys/secret.js";
import { type AuditEventResponse, allEvents, succeed } from "../../support/calls.js";
import { expectSuccess, post } from "../../support/clients/http-requests.js";
import { openFileApp } from "../../support/file-service.js";
import { operatorKey } from "../../support/harness.js";

let home: { workspaceId: string; keyId: string; key: string };

const app = await openFileApp();
const origin = app.httpUrl;
beforeEach(async () => {
  home = await succeed(origin, "workspaces.createWorkspace", operatorKey, { name: "acme" });
});

/** Makes a call that must succeed. Returns its data and its audit events, oldest first; checks their common fields. */
async function change<T = Record<string, never>>(operation: string, credential: string, body: object) {
  const known = new Set((await allEvents(origin)).map(({ eventId }) => eventId));
  const from = Date.now();
  const response = await post(origin, `/v2/${operation}`, credential, body);
  const until = Date.now();
  const data = expectSuccess(response) as T;
  const events = (await allEvents(origin)).filter(({ eventId }) => !known.has(eventId)).reverse();
  for (const event of events) {
    expect(event.eventId).toMatch(/^evt_[0-9a-z]{26}$/);
    expect(event.requestId).toBe(response.headers["x-request-id"]);
    expect(event.actor).toBe(credential === operatorKey ? "operator" : home.keyId);
    expect(event.at).toBeGreaterThanOrEqual(from);
    expect(event.at).toBeLessThanOrEqual(until);
  }
  return { data, events: events.map(changeOf) };
}

/** The fields of an event that describe the change. */
function changeOf({ workspaceId, type, resourceId, before, after }: AuditEventResponse) {
  return { workspaceId, type, resourceId, before, after };
}

const createKey = (body: object) => succeed<{ keyId: string; key: string }>(origin, "keys.createKey", home.key, body);
const createIdentity = (body: object) =>
  succeed<{ identityId: string }>(origin, "identities.createIdentity", home.key, body);

/** A key without settings, as in an audit event. */
const bare = {
  start: expect.stringMatching(/^lk_[0-9A-Za-z]{4}$/),
  name: null,
  enabled: true,
  scopes: [],
  permissions: [],
  roles: [],
  apiId: null,
  identityId: null,
  meta: null,
  expires: null,
  ratelimits: [],
  migrationId: null,
};

/** An identity without settings, as in an audit event. */
const bareIdentity = { externalId: "user", meta: {}, ratelimits: [] };

const requestLimit = { name: "requests", limit: 100, duration: 60_000, autoApply: true };
const storedLimit = { ...requestLimit, id: expect.stringMatching(/^rl_\w{26}$/) };

describe("a change writes exactly its audit events: actor, type, resource, time, request id, before and after", () => {
  it("creating a workspace: the workspace, and its first key", async () => {
    const { data, events } = await change<typeof home>("workspaces.createWorkspace", operatorKey, { name: "new" });
    const { workspaceId, keyId } = data;
    const workspace = { name: "new", enabled: true, disabledReason: null, disabledNote: null };
    const key = { ...bare, name: "first key", scopes: ["*"] };
    expect(events).toEqual([
      { workspaceId, type: "workspace.create", resourceId: workspaceId, after: workspace },
      { workspaceId, type: "key.create", resourceId: keyId, after: key },
    ]);
  });

  it("disabling a workspace, and enabling it", async () => {
    const { workspaceId } = home;
    const enabled = { name: "acme", enabled: true, disabledReason: null, disabledNote: null };
    const disabled = { name: "acme", enabled: false, disabledReason: "UNPAID_BILLING", disabledNote: "since May" };
    const request = { workspaceId, reason: "UNPAID_BILLING", note: "since May" };
    const disabling = await change("workspaces.disableWorkspace", operatorKey, request);
    const common = { workspaceId, resourceId: workspaceId };
    expect(disabling.events).toEqual([{ ...common, type: "workspace.disable", before: enabled, after: disabled }]);
    const enabling = await change("workspaces.enableWorkspace", operatorKey, { workspaceId });
    expect(enabling.events).toEqual([{ ...common, type: "workspace.enable", before: disabled, after: enabled }]);
  });

  it("creating a key", async () => {
    const expires = Date.now() + 60_000;
    const settings = {
      name: "n",
      enabled: false,
      scopes: ["keys.read"],
      permissions: ["documents.read"],
      meta: { plan: "pro" },
      expires,
    };
    const { data, events } = await change<{ keyId: string }>("keys.createKey", home.key, { ...settings, prefix: "sk" });
    const after = { ...bare, ...settings, start: expect.stringMatching(/^sk_[0-9A-Za-z]{4}$/) };
    expect(events).toEqual([{ workspaceId: home.workspaceId, type: "key.create", resourceId: data.keyId, after }]);
  });

  it("creating a key for an unknown externalId: the identity, then the key; for a known one only the key", async () => {
    const first = await change<{ keyId: string }>("keys.createKey", home.key, { externalId: "user" });
    const identityId = first.events[0]?.resourceId;
    const { workspaceId } = home;
    expect(identityId).toMatch(/^id_/);
    expect(first.events).toEqual([
      { workspaceId, type: "identity.create", resourceId: identityId, after: bareIdentity },
      { workspaceId, type: "key.create", resourceId: first.data.keyId, after: { ...bare, identityId } },
    ]);
    const second = await change<{ keyId: string }>("keys.createKey", home.key, { externalId: "user" });
    expect(second.events).toEqual([
      { workspaceId, type: "key.create", resourceId: second.data.keyId, after: { ...bare, identityId } },
    ]);
  });

  it("updating a key: only the requested fields differ; an unknown externalId creates its identity first", async () => {
    const { keyId } = await createKey({ name: "old", meta: { a: 1 } });
    const before = { ...bare, name: "old", meta: { a: 1 } };
    const after = { ...before, name: null, enabled: false };
    const common = { workspaceId: home.workspaceId, type: "key.update", resourceId: keyId };
    const { events } = await change("keys.updateKey", home.key, { keyId, name: null, enabled: false });
    expect(events).toEqual([{ ...common, before, after }]);
    const assigned = await change("keys.updateKey", home.key, { keyId, externalId: "user" });
    const identityId = assigned.events[0]?.resourceId;
    expect(assigned.events).toEqual([
      expect.objectContaining({ type: "identity.create", after: bareIdentity }),
      { ...common, before: after, after: { ...after, identityId } },
    ]);
  });

  it("deleting a key", async () => {
    const { keyId } = await createKey({ name: "gone" });
    const { events } = await change("keys.deleteKey", home.key, { keyId });
    const common = { workspaceId: home.workspaceId, type: "key.delete", resourceId: keyId };
    expect(events).toEqual([{ ...common, before: { ...bare, name: "gone" } }]);
  });

  it("rerolling a key: the new key with the same settings, and the end of the old one", async () => {
    const { keyId } = await createKey({ name: "old", externalId: "user", scopes: ["keys.*"] });
    const from = Date.now();
    const reroll = { keyId, expiration: 60_000 };
    const { data, events } = await change<{ keyId: string }>("keys.rerollKey", home.key, reroll);
    const settings = { ...bare, name: "old", scopes: ["keys.*"], identityId: expect.stringMatching(/^id_/) };
    const { workspaceId } = home;
    expect(events).toEqual([
      { workspaceId, type: "key.create", resourceId: data.keyId, after: settings },
      {
        workspaceId,
        type: "key.reroll",
        resourceId: keyId,
        before: settings,
        after: { ...settings, expires: expect.any(Number) },
      },
    ]);
    expect(Number(events[1]?.after?.["expires"])).toBeGreaterThanOrEqual(from + 60_000);
    expect(events[0]?.after?.["start"]).not.toBe(events[1]?.before?.["start"]);
  });

  it("creating, updating and deleting an identity; one event also covers the keys that lose it", async () => {
    const { workspaceId } = home;
    const created = await change<{ identityId: string }>("identities.createIdentity", home.key, {
      externalId: "user",
      meta: { a: 1 },
    });
    const { identityId } = created.data;
    await createKey({ identityId });
    const common = { workspaceId, resourceId: identityId };
    const [first, second] = [
      { externalId: "user", meta: { a: 1 }, ratelimits: [] },
      { externalId: "user", meta: { b: [2] }, ratelimits: [] },
    ];
    expect(created.events).toEqual([{ ...common, type: "identity.create", after: first }]);
    const updated = await change("identities.updateIdentity", home.key, { identityId, meta: second.meta });
    expect(updated.events).toEqual([{ ...common, type: "identity.update", before: first, after: second }]);
    const deleted = await change("identities.deleteIdentity", home.key, { externalId: "user" });
    expect(deleted.events).toEqual([{ ...common, type: "identity.delete", before: second }]);
  });
});

describe("the audit events of limits, credits, roles and APIs", () => {
  it("a key with rate limits, roles, an API and credits: the key, then its credits", async () => {
    const { workspaceId } = home;
    const { apiId } = await succeed<{ apiId: string }>(origin, "apis.createApi", home.key, { name: "payments" });
    const role = { name: "editor", permissions: ["documents.read"] };
    const { roleId } = await succeed<{ roleId: string }>(origin, "permissions.createRole", home.key, role);
    const refill = { interval: "monthly", amount: 50, refillDay: 31 };
    const settings = { apiId, ratelimits: [requestLimit] };
    const request = { ...settings, roles: ["editor"], credits: { remaining: 10, refill } };
    const created = await change<{ keyId: string }>("keys.createKey", home.key, request);
    const resourceId = created.data.keyId;
    const after = { ...bare, apiId, roles: [roleId], ratelimits: [storedLimit] };
    expect(created.events).toEqual([
      { workspaceId, type: "key.create", resourceId, after },
      { workspaceId, type: "key.updateCredits", resourceId, after: { remaining: 10, refill } },
    ]);
    const update = { keyId: resourceId, ratelimits: [], roles: [], credits: { refill: null } };
    const updated = await change("keys.updateKey", home.key, update);
    const withoutBoth = { ...after, ratelimits: [], roles: [] };
    const credits = { before: { remaining: 10, refill }, after: { remaining: 10 } };
    expect(updated.events).toEqual([
      { workspaceId, type: "key.update", resourceId, before: after, after: withoutBoth },
      { workspaceId, type: "key.updateCredits", resourceId, ...credits },
    ]);
  });

  it("credits: each change of their number, and of whether the key needs them", async () => {
    const { workspaceId } = home;
    const { keyId } = await createKey({ credits: { remaining: 10 } });
    const common = { workspaceId, type: "key.updateCredits", resourceId: keyId };
    const updateCredits = async (request: object) =>
      (await change("keys.updateCredits", home.key, { keyId, ...request })).events;
    const credits = (remaining: number) => ({ remaining });
    expect(await updateCredits({ operation: "increment", value: 5 })).toEqual([
      { ...common, before: credits(10), after: credits(15) },
    ]);
    expect(await updateCredits({ operation: "decrement", value: 20 })).toEqual([
      { ...common, before: credits(15), after: credits(0) },
    ]);
    expect(await updateCredits({ operation: "set", value: 0 })).toEqual([]);
    expect(await updateCredits({ operation: "decrement", value: 1 })).toEqual([]);
    const [ended, ...others] = await updateCredits({ operation: "set" });
    expect(ended).toMatchObject({ type: expect.stringMatching(/^key\.update/), resourceId: keyId });
    expect(others.length).toBeLessThan(2);
  });

  it("a verification that spends credits and counts uses writes no event", async () => {
    const { key } = await createKey({ credits: { remaining: 10 }, ratelimits: [requestLimit] });
    expect((await change("keys.verifyKey", home.key, { key })).events).toEqual([]);
    const use = { namespace: "email.send", identifier: "user", limit: 5, duration: 60_000 };
    expect((await change("ratelimit.limit", home.key, use)).events).toEqual([]);
  });

  it("permissions and roles of a key, as updates of the key", async () => {
    const { workspaceId } = home;
    const { keyId } = await createKey({ permissions: ["a"] });
    const { roleId } = await succeed<{ roleId: string }>(origin, "permissions.createRole", home.key, {
      name: "editor",
    });
    const common = { workspaceId, type: "key.update", resourceId: keyId };
    let before: object = { ...bare, permissions: ["a"] };
    for (const [operation, request, changed] of [
      ["keys.addPermissions", { permissions: ["b", "a"] }, { permissions: ["a", "b"] }],
      ["keys.removePermissions", { permissions: ["a", "c"] }, { permissions: ["b"] }],
      ["keys.setPermissions", { permissions: ["d"] }, { permissions: ["d"] }],
      ["keys.addRoles", { roles: ["editor"] }, { roles: [roleId] }],
      ["keys.removeRoles", { roles: [roleId] }, { roles: [] }],
      ["keys.setRoles", { roles: [roleId] }, { roles: [roleId] }],
    ] as const) {
      const after = { ...before, ...changed };
      const { events } = await change(operation, home.key, { keyId, ...request });
      expect(events, operation).toEqual([{ ...common, before, after }]);
      before = after;
    }
  });

  it("an import: its identities, its keys with the label of the import, and their credits", async () => {
    const { workspaceId } = home;
    const [first, second] = [newHash(), newHash()];
    const keys = [
      { hash: first, externalId: "user", credits: { remaining: 5 } },
      { hash: second, name: "second", externalId: "user" },
    ];
    const request = { migrationId: "from another service", keys };
    const { data, events } = await change<Migration>("keys.migrateKeys", home.key, request);
    const [one, other] = data.migrated.map(({ keyId }) => keyId);
    const identityId = events[0]?.resourceId;
    const imported = { ...bare, start: "", identityId, migrationId: request.migrationId };
    expect(events).toEqual([
      { workspaceId, type: "identity.create", resourceId: identityId, after: bareIdentity },
      { workspaceId, type: "key.create", resourceId: one, after: imported },
      { workspaceId, type: "key.create", resourceId: other, after: { ...imported, name: "second" } },
      { workspaceId, type: "key.updateCredits", resourceId: one, after: { remaining: 5 } },
    ]);
    const again = await change<Migration>("keys.migrateKeys", home.key, request);
    expect(again).toEqual({ data: { migrated: [], failed: [first, second] }, events: [] });
  });

  it("APIs, permissions, roles and overrides: each change with its before and after", async () => {
    const { workspaceId } = home;
    const api = await change<{ apiId: string }>("apis.createApi", home.key, { name: "payments" });
    const ofApi = { workspaceId, resourceId: api.data.apiId };
    expect(api.events).toEqual([{ ...ofApi, type: "api.create", after: { name: "payments" } }]);
    const deletion = await change("apis.deleteApi", home.key, api.data);
    expect(deletion.events).toEqual([{ ...ofApi, type: "api.delete", before: { name: "payments" } }]);

    const permission = { name: "Read", slug: "documents.read", description: null };
    const request = { name: "Read", slug: "documents.read" };
    const catalogued = await change<{ permissionId: string }>("permissions.createPermission", home.key, request);
    const ofPermission = { workspaceId, resourceId: catalogued.data.permissionId };
    expect(catalogued.events).toEqual([{ ...ofPermission, type: "permission.create", after: permission }]);
    const removed = await change("permissions.deletePermission", home.key, { permission: "documents.read" });
    expect(removed.events).toEqual([{ ...ofPermission, type: "permission.delete", before: permission }]);

    const first = { name: "editor", description: "edits", permissions: ["a", "b"] };
    const second = { ...first, permissions: ["c"] };
    const role = await change<{ roleId: string }>("permissions.createRole", home.key, first);
    const ofRole = { workspaceId, resourceId: role.data.roleId };
    expect(role.events).toEqual([{ ...ofRole, type: "role.create", after: first }]);
    const set = { roleId: "editor", permissions: ["c"] };
    const changed = await change("permissions.setRolePermissions", home.key, set);
    expect(changed.events).toEqual([{ ...ofRole, type: "role.update", before: first, after: second }]);
    expect((await change("permissions.setRolePermissions", home.key, set)).events).toEqual([]);
    const ended = await change("permissions.deleteRole", home.key, { role: "editor" });
    expect(ended.events).toEqual([{ ...ofRole, type: "role.delete", before: second }]);

    const override = { namespace: "email.send", identifier: "premium_*", limit: 5, duration: 60_000 };
    const larger = { ...override, limit: 9 };
    const added = await change<{ overrideId: string }>("ratelimit.setOverride", home.key, override);
    const ofOverride = { workspaceId, resourceId: added.data.overrideId };
    expect(added.events).toEqual([{ ...ofOverride, type: "override.create", after: override }]);
    const replaced = await change("ratelimit.setOverride", home.key, larger);
    expect(replaced.events).toEqual([{ ...ofOverride, type: "override.update", before: override, after: larger }]);
    expect((await change("ratelimit.setOverride", home.key, larger)).events).toEqual([]);
    const { namespace, identifier } = override;
    const gone = await change("ratelimit.deleteOverride", home.key, { namespace, identifier });
    expect(gone.events).toEqual([{ ...ofOverride, type: "override.delete", before: larger }]);
  });

  it("the rate limits of an identity", async () => {
    const { workspaceId } = home;
    const request = { externalId: "user", ratelimits: [requestLimit] };
    const created = await change<{ identityId: string }>("identities.createIdentity", home.key, request);
    const common = { workspaceId, resourceId: created.data.identityId };
    const limited = { ...bareIdentity, ratelimits: [storedLimit] };
    expect(created.events).toEqual([{ ...common, type: "identity.create", after: limited }]);
    const cleared = await change("identities.updateIdentity", home.key, { externalId: "user", ratelimits: [] });
    expect(cleared.events).toEqual([{ ...common, type: "identity.update", before: limited, after: bareIdentity }]);
  });
});

interface Migration {
  readonly migrated: readonly { readonly keyId: string }[];
  readonly failed: readonly string[];
}

function newHash(): string {
  return randomBytes(32).toString("base64");
}

it.each([
  ["enabling an enabled workspace", "workspaces.enableWorkspace", {}],
  ["updating no field of an identity", "identities.updateIdentity", { externalId: "user" }],
  ["updating no field of a key", "keys.updateKey", {}],
  ["adding a permission that the key has", "keys.addPermissions", { permissions: ["a"] }],
  ["removing a permission that the key lacks", "keys.removePermissions", { permissions: ["b"] }],
  ["setting the permissions that the key has", "keys.setPermissions", { permissions: ["a"] }],
  ["removing a role that the key lacks", "keys.removeRoles", { roles: ["nothing"] }],
  ["setting no roles of a key without roles", "keys.setRoles", { roles: [] }],
  ["setting no credits of a key without credits", "keys.updateCredits", { operation: "set" }],
])("there is no event without its change: %s writes none", async (_what, operation, body) => {
  await createIdentity({ externalId: "user" });
  if (operation.startsWith("keys.")) {
    await succeed(origin, "keys.setPermissions", home.key, { keyId: home.keyId, permissions: ["a"] });
  }
  const ofWorkspace = operation.startsWith("workspaces.");
  const resource = ofWorkspace
    ? { workspaceId: home.workspaceId }
    : operation.startsWith("keys.") && { keyId: home.keyId };
  const { events } = await change(operation, ofWorkspace ? operatorKey : home.key, { ...body, ...resource });
  expect(events).toEqual([]);
});

it("no audit event contains a secret or a hash of one", async () => {
  const { keyId, key } = await createKey({ name: "k" });
  const rerolled = await createReroll(keyId);
  const events = JSON.stringify(await allEvents(origin));
  expect(events).toContain(keyId);
  for (const secret of [home.key, key, rerolled.key, operatorKey]) {
    const hash = Buffer.from(hashSecret(secret), "hex");
    for (const form of [
      secret,
      secret.slice(-30),
      hash.toString("hex"),
      hash.toString("base64"),
      hash.toString("base64url"),
    ]) {
      expect(events).not.toContain(form);
    }
  }
});

function createReroll(keyId: string) {
  return succeed<{ key: string }>(origin, "keys.rerollKey", home.key, { keyId, expiration: 0 });
}
