import { describe, expect } from "vitest";
import { operatorKey } from "../support/harness.js";
import { allProtocols, openContract } from "./cases.js";
import { newKey } from "./retries.js";
import type { Scene } from "./scene.js";

const { everyProtocol } = openContract(allProtocols);

function createRootKey({ ok, home: { workspaceId } }: Scene, request = {}) {
  return ok("createRootKey", operatorKey, { workspaceId, ...request });
}

/** The ways in which a workspace can lose its keys. */
const losses: Record<string, (scene: Scene) => Promise<unknown>> = {
  deleted: ({ ok, home: { key, keyId } }) => ok("deleteKey", key, { keyId }),
  disabled: ({ ok, home: { key, keyId } }) => ok("updateKey", key, { keyId, enabled: false }),
  "stripped of their scopes": ({ ok, home: { key, keyId } }) => ok("updateKey", key, { keyId, scopes: [] }),
  expired: async ({ ok, clock, home: { key, keyId } }) => {
    await ok("updateKey", key, { keyId, expires: clock.now() + 60_000 });
    await clock.advance(60_000);
  },
};

describe("account recovery: the operator can restore access to a workspace whose keys are all", () => {
  for (const [what, lose] of Object.entries(losses)) {
    everyProtocol(what, async (scene) => {
      const customer = await scene.ok("createKey", scene.home.key, { permissions: ["documents.read"] });
      await lose(scene);
      expect((await scene.call("listKeys", scene.home.key)).ok).toBe(false);
      const { keyId, key } = await createRootKey(scene);
      const keys = await scene.ok("listKeys", key);
      expect(keys.find((each) => each.keyId === keyId)).toMatchObject({
        workspaceId: scene.home.workspaceId,
        name: "root key",
        enabled: true,
        scopes: ["*"],
        permissions: [],
      });
      expect(await scene.ok("verifyKey", key, { key: customer.key })).toMatchObject({ code: "VALID" });
      await scene.ok("createKey", key, { scopes: ["*"] });
    });
  }
});

describe("a root key", () => {
  everyProtocol("has the name and the scopes of the request, and no more", async (scene) => {
    const { keyId, key } = await createRootKey(scene, { name: "reader", scopes: ["keys.read"] });
    const made = await scene.ok("getKey", key, { keyId });
    expect(made).toMatchObject({ name: "reader", scopes: ["keys.read"], permissions: [] });
    for (const unset of ["expires", "identity", "meta"]) expect(made).not.toHaveProperty(unset);
    await scene.refused("authorization/insufficient_permissions", "createKey", key);
  });

  everyProtocol("of a disabled workspace is created, and refused until the workspace is enabled", async (scene) => {
    const { workspaceId } = scene.home;
    await scene.ok("disableWorkspace", operatorKey, { workspaceId, reason: "SUSPICIOUS_ACTIVITY" });
    const { key } = await createRootKey(scene);
    await scene.refused("authorization/workspace_disabled", "listKeys", key);
    await scene.ok("enableWorkspace", operatorKey, { workspaceId });
    expect(await scene.ok("listKeys", key)).toHaveLength(2);
  });

  everyProtocol("of a workspace that does not exist is refused, and nothing is stored", async (scene) => {
    const request = { workspaceId: "ws_00000000000000000000000000" };
    await scene.refused("data/workspace_not_found", "createRootKey", operatorKey, request);
    expect(await scene.ok("listAuditEvents", operatorKey, request)).toEqual([]);
  });

  everyProtocol("can be created by the operator only, not by a key of the workspace", async (scene) => {
    const { workspaceId, key } = scene.home;
    await scene.refused("authorization/insufficient_permissions", "createRootKey", key, { workspaceId });
    expect(await scene.ok("listKeys", key)).toHaveLength(1);
  });

  everyProtocol("creates one audit event, key.create by the operator", async (scene) => {
    const { keyId } = await createRootKey(scene, { scopes: ["keys.*"] });
    const [event, ...more] = await scene.ok("listAuditEvents", scene.home.key, { resourceId: keyId });
    expect(more).toEqual([]);
    expect(event).toMatchObject({
      type: "key.create",
      actor: "operator",
      workspaceId: scene.home.workspaceId,
      after: { name: "root key", scopes: ["keys.*"], permissions: [] },
    });
  });

  everyProtocol("is created once for each Idempotency-Key", async (scene) => {
    const headers = newKey();
    const request = { workspaceId: scene.home.workspaceId };
    const first = await scene.ok("createRootKey", operatorKey, request, headers);
    expect(await scene.ok("createRootKey", operatorKey, request, headers)).toEqual(first);
    expect(await scene.ok("listKeys", first.key)).toHaveLength(2);
  });
});
