import { describe, expect } from "vitest";
import { operatorKey } from "../support/harness.js";
import type { EventResponse } from "../support/responses.js";
import { openContract } from "./cases.js";
import { createFullKey } from "./key-settings.js";
import type { Scene } from "./scene.js";

const { everyProtocol } = openContract();

/** Makes one change of each kind, and returns the ids that the events must name. */
async function makeChanges({ ok, home }: Scene) {
  const { workspaceId } = home;
  const { keyId } = await ok("createKey", home.key, { name: "first", permissions: ["documents.read"] });
  await ok("updateKey", home.key, { keyId, name: "second" });
  await ok("rerollKey", home.key, { keyId });
  await ok("deleteKey", home.key, { keyId });
  const { identityId } = await ok("createIdentity", home.key, { externalId: "user_1" });
  await ok("updateIdentity", home.key, { identityId, meta: { plan: "pro" } });
  await ok("deleteIdentity", home.key, { identityId });
  await ok("disableWorkspace", operatorKey, { workspaceId, reason: "OWNER_REQUEST" });
  await ok("enableWorkspace", operatorKey, { workspaceId });
  return { keyId, identityId };
}

function summarize({ type, actor, resourceId }: EventResponse) {
  return { type, actor, resourceId };
}

describe("listing audit events", () => {
  everyProtocol(
    "the operator and a key with audit.read list the same events of a workspace, newest first",
    async (scene) => {
      const { workspaceId, keyId: actor } = scene.home;
      const { keyId, identityId } = await makeChanges(scene);
      const { key } = await scene.ok("createKey", scene.home.key, { scopes: ["audit.read"] });
      const events = await scene.ok("listAuditEvents", key);
      expect(await scene.ok("listAuditEvents", key, { workspaceId })).toEqual(events);
      expect(await scene.ok("listAuditEvents", operatorKey, { workspaceId })).toEqual(events);
      expect(new Set(events.map((event) => event.workspaceId))).toEqual(new Set([workspaceId]));
      const ofKey = events.filter(({ resourceId }) => resourceId === keyId);
      expect(ofKey.map(summarize)).toEqual(
        ["key.delete", "key.reroll", "key.update", "key.create"].map((type) => ({ type, actor, resourceId: keyId })),
      );
      const ofIdentity = events.filter(({ resourceId }) => resourceId === identityId);
      expect(ofIdentity.map(summarize)).toEqual(
        ["identity.delete", "identity.update", "identity.create"].map((type) => ({
          type,
          actor,
          resourceId: identityId,
        })),
      );
      const ofWorkspace = events.filter(({ resourceId }) => resourceId === workspaceId);
      expect(ofWorkspace.map(summarize)).toEqual(
        ["workspace.enable", "workspace.disable", "workspace.create"].map((type) => ({
          type,
          actor: "operator",
          resourceId: workspaceId,
        })),
      );
    },
  );

  everyProtocol(
    "tenant isolation: a key that names another workspace, or an unknown one, gets workspace_not_found",
    async (scene) => {
      const other = await scene.newWorkspace();
      const refusals = [];
      for (const workspaceId of [other.workspaceId, "ws_01jcz0000000000000000000zz", "no id at all"]) {
        const request = { workspaceId };
        refusals.push(await scene.refused("data/workspace_not_found", "listAuditEvents", scene.home.key, request));
      }
      for (const refusal of refusals) expect(refusal).toEqual(refusals[0]);
    },
  );

  everyProtocol(
    "tenant isolation: a key sees no events of another workspace, also with a resourceId filter",
    async (scene) => {
      const other = await scene.newWorkspace();
      const { keyId } = await scene.ok("createKey", other.key, { name: "theirs" });
      for (const resourceId of [keyId, other.workspaceId]) {
        expect(await scene.ok("listAuditEvents", scene.home.key, { resourceId })).toEqual([]);
      }
      const events = await scene.ok("listAuditEvents", scene.home.key);
      expect(JSON.stringify(events)).not.toContain(other.workspaceId);
    },
  );

  everyProtocol("events can be filtered by type, resource, time, and combinations", async (scene) => {
    await makeChanges(scene);
    await scene.clock.advance(60_000);
    const since = scene.clock.now();
    const { keyId } = await createFullKey(scene);
    await scene.clock.advance(60_000);
    const until = scene.clock.now();
    await scene.ok("updateKey", scene.home.key, { keyId, name: "second" });
    const typesOf = async (request: Record<string, unknown>) =>
      (await scene.ok("listAuditEvents", scene.home.key, request)).map(({ type }) => type);
    expect(await typesOf({ resourceId: keyId })).toEqual(["key.update", "key.create"]);
    expect(await typesOf({ resourceId: keyId, type: "key.update" })).toEqual(["key.update"]);
    expect(await typesOf({ type: "key.delete" })).toEqual(["key.delete"]);
    expect(await typesOf({ type: "key" })).toEqual([]);
    expect((await typesOf({ since, until })).sort()).toEqual(["identity.create", "key.create"]);
    expect(await typesOf({ since: until })).toEqual(["key.update"]);
    expect(await typesOf({ since: until, until: since })).toEqual([]);
    expect(await typesOf({ since, until, type: "key.create", resourceId: keyId })).toEqual(["key.create"]);
  });

  everyProtocol("pagination: pages of any size return each event exactly once, newest first", async (scene) => {
    await makeChanges(scene);
    const all = await scene.ok("listAuditEvents", scene.home.key);
    const times = all.map(({ at }) => at);
    expect(times).toEqual(times.toSorted((one, other) => other - one));
    for (const limit of [1, 4, 100]) {
      const seen: EventResponse[] = [];
      let cursor: string | undefined;
      do {
        const request = cursor === undefined ? { limit } : { limit, cursor };
        const { data, pagination } = await scene.page("listAuditEvents", scene.home.key, request);
        seen.push(...data);
        cursor = pagination?.cursor;
        expect(pagination?.hasMore).toBe(cursor !== undefined);
      } while (cursor !== undefined && seen.length < 100);
      expect(seen).toEqual(all);
    }
  });

  everyProtocol("no event contains a secret", async (scene) => {
    const { keyId, key } = await createFullKey(scene);
    const rerolled = await scene.ok("rerollKey", scene.home.key, { keyId });
    const events = JSON.stringify(await scene.ok("listAuditEvents", scene.home.key));
    for (const secret of [key, rerolled.key, scene.home.key]) expect(events).not.toContain(secret.slice(-34));
  });

  everyProtocol("refused calls leave no event", async (scene) => {
    const before = await scene.ok("listAuditEvents", scene.home.key);
    await scene.refused("data/key_not_found", "deleteKey", scene.home.key, { keyId: "nobody" });
    await scene.refused("data/identity_not_found", "createKey", scene.home.key, { identityId: "nobody" });
    await scene.refused("application/invalid_input", "createIdentity", scene.home.key, { externalId: "" });
    expect(await scene.ok("listAuditEvents", scene.home.key)).toEqual(before);
  });
});
