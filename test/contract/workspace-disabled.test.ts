import { describe, expect, test } from "vitest";
import { operatorKey } from "../support/harness.js";
import { keyOperations, operationOf, operatorOperations } from "../support/operations.js";
import { allProtocols, openContract } from "./cases.js";
import type { Scene } from "./scene.js";

const contract = openContract(allProtocols);
const { everyProtocol } = contract;
const code = "authorization/workspace_disabled";

/** Every state that a key can be in, and how to create such a key. */
const keyStates: Record<string, (scene: Scene) => Promise<string>> = {
  "the first key": async ({ home }) => home.key,
  "an enabled key": async ({ ok, home }) => (await ok("createKey", home.key, { scopes: ["*"] })).key,
  "an individually disabled key": async ({ ok, home }) =>
    (await ok("createKey", home.key, { scopes: ["*"], enabled: false })).key,
  "an expired key": ({ newExpiredKey }) => newExpiredKey(),
  "an expired and individually disabled key": ({ newExpiredKey }) => newExpiredKey({ enabled: false }),
  "a key that lacks the scope": async ({ ok, home }) =>
    (await ok("createKey", home.key, { scopes: ["identities.read"], permissions: ["keys.read", "*"] })).key,
  "a key without any scope": async ({ ok, home }) => (await ok("createKey", home.key)).key,
};

async function disable({ ok, home: { workspaceId } }: Scene): Promise<void> {
  await ok("disableWorkspace", operatorKey, { workspaceId, reason: "SUSPICIOUS_ACTIVITY" });
}

describe("every key of a disabled workspace", () => {
  for (const [state, makeKey] of Object.entries(keyStates)) {
    everyProtocol(`${state} gets workspace_disabled from every operation, for any body`, async (scene) => {
      const key = await makeKey(scene);
      await disable(scene);
      for (const operation of [...keyOperations, ...operatorOperations]) {
        const { wellFormed, malformed } = operationOf(operation);
        for (const request of [wellFormed, malformed]) {
          const { detail, fields } = await scene.refused(code, operation, key, request);
          expect(detail).toMatch(/workspace tied to (this|the) API key is disabled/);
          expect(fields).toBeUndefined();
        }
      }
    });
  }
});

describe("a disabled workspace", () => {
  test("has exactly the HTTP response of the specification's section 7.1", async () => {
    const { app, protocols } = contract;
    const created = await protocols.http.call("createWorkspace", operatorKey, { name: "acme" });
    if (!created.ok) return expect.fail(created.detail);
    const { workspaceId, key } = created.data as { workspaceId: string; key: string };
    await protocols.grpc.call("disableWorkspace", operatorKey, { workspaceId, reason: "UNPAID_BILLING" });
    const response = await fetch(`${app.httpUrl}/v1/keys.listKeys`, {
      method: "POST",
      headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    });
    expect(response.status).toBe(403);
    expect(await response.json()).toEqual({
      meta: { requestId: response.headers.get("x-request-id") },
      error: {
        detail: expect.stringMatching(/workspace tied to (this|the) API key is disabled/),
        status: 403,
        title: "Forbidden",
        type: `${app.httpUrl}/api-reference/errors-v2/service/authorization/workspace_disabled`,
      },
    });
  });

  everyProtocol("does not affect keys of another workspace", async (scene) => {
    const other = await scene.newWorkspace();
    await disable(scene);
    await scene.refused(code, "listKeys", scene.home.key);
    expect(await scene.ok("listKeys", other.key)).toHaveLength(1);
    await scene.ok("createIdentity", other.key, { externalId: "user_1" });
  });

  everyProtocol("is not changed by refused calls", async (scene) => {
    await scene.ok("createIdentity", scene.home.key, { externalId: "user_1" });
    const { keyId, key } = await scene.ok("createKey", scene.home.key, { name: "first", scopes: ["keys.read"] });
    await disable(scene);
    await scene.refused(code, "updateKey", scene.home.key, { keyId, name: "second", enabled: false });
    await scene.refused(code, "rerollKey", scene.home.key, { keyId });
    await scene.refused(code, "deleteKey", scene.home.key, { keyId });
    await scene.refused(code, "updateIdentity", scene.home.key, { externalId: "user_1", meta: { a: 1 } });
    await scene.refused(code, "createIdentity", scene.home.key, { externalId: "user_2" });
    await scene.refused(code, "deleteIdentity", scene.home.key, { externalId: "user_1" });
    await scene.refused(code, "createKey", scene.home.key, { externalId: "user_3" });
    await scene.ok("enableWorkspace", operatorKey, { workspaceId: scene.home.workspaceId });
    const identities = await scene.ok("listIdentities", scene.home.key);
    expect(identities).toEqual([expect.objectContaining({ externalId: "user_1", meta: {} })]);
    const keys = await scene.ok("listKeys", key);
    expect(keys.map(({ name }) => name)).toEqual(["first key", "first"]);
  });

  everyProtocol("that is enabled again verifies every key by its own state as before", async (scene) => {
    const keys: Record<string, string> = {};
    for (const [state, makeKey] of Object.entries(keyStates)) keys[state] = await makeKey(scene);
    await disable(scene);
    for (const key of Object.values(keys)) await scene.refused(code, "listKeys", key);
    await scene.ok("enableWorkspace", operatorKey, { workspaceId: scene.home.workspaceId });
    const outcomes: Record<string, string> = {};
    for (const [state, key] of Object.entries(keys)) {
      const outcome = await scene.call("listKeys", key);
      outcomes[state] = outcome.ok ? "accepted" : outcome.code;
    }
    expect(outcomes).toEqual({
      "the first key": "accepted",
      "an enabled key": "accepted",
      "an individually disabled key": "authorization/key_disabled",
      "an expired key": "authentication/key_expired",
      "an expired and individually disabled key": "authorization/key_disabled",
      "a key that lacks the scope": "authorization/insufficient_permissions",
      "a key without any scope": "authorization/insufficient_permissions",
    });
  });

  everyProtocol("can be disabled and enabled repeatedly, each time with immediate effect", async (scene) => {
    for (let round = 0; round < 5; round++) {
      await disable(scene);
      await scene.refused(code, "listKeys", scene.home.key);
      await scene.ok("enableWorkspace", operatorKey, { workspaceId: scene.home.workspaceId });
      await scene.ok("listKeys", scene.home.key);
    }
  });
});
