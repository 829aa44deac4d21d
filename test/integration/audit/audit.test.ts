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
  identityId: null,
  meta: null,
  expires: null,
};

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
      { workspaceId, type: "identity.create", resourceId: identityId, after: { externalId: "user", meta: {} } },
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
      expect.objectContaining({ type: "identity.create", after: { externalId: "user", meta: {} } }),
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
      { externalId: "user", meta: { a: 1 } },
      { externalId: "user", meta: { b: [2] } },
    ];
    expect(created.events).toEqual([{ ...common, type: "identity.create", after: first }]);
    const updated = await change("identities.updateIdentity", home.key, { identityId, meta: second.meta });
    expect(updated.events).toEqual([{ ...common, type: "identity.update", before: first, after: second }]);
    const deleted = await change("identities.deleteIdentity", home.key, { externalId: "user" });
    expect(deleted.events).toEqual([{ ...common, type: "identity.delete", before: second }]);
  });
});

it.each([
  ["enabling an enabled workspace", "workspaces.enableWorkspace", {}],
  ["updating no field of an identity", "identities.updateIdentity", { externalId: "user" }],
  ["updating no field of a key", "keys.updateKey", {}],
])("there is no event without its change: %s writes none", async (_what, operation, body) => {
  await createIdentity({ externalId: "user" });
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
