import { describe, expect, test } from "vitest";
import { operatorKey } from "../support/harness.js";
import { allProtocols, openContract } from "./cases.js";
import type { Scene } from "./scene.js";

const contract = openContract(allProtocols);
const { everyProtocol } = contract;
const code = "data/identity_not_found";

/** Each cause in section 7.2: two identifiers, neither of which may be found in the caller's workspace. */
const causes: Record<string, (scene: Scene) => Promise<{ identityId: string; externalId: string }>> = {
  "a mistyped identifier": async ({ ok, home }) => {
    const { identityId } = await ok("createIdentity", home.key, { externalId: "user_1" });
    return { identityId: otherEnding(identityId), externalId: "user_l" };
  },
  "an identifier with a missing character": async ({ ok, home }) => {
    const { identityId } = await ok("createIdentity", home.key, { externalId: "user_1" });
    return { identityId: identityId.slice(0, -1), externalId: "user_" };
  },
  "the wrong letter case": async ({ ok, home }) => {
    const { identityId } = await ok("createIdentity", home.key, { externalId: "user_1" });
    return { identityId: identityId.toUpperCase(), externalId: "User_1" };
  },
  "a deleted identity": async ({ ok, home }) => {
    const { identityId } = await ok("createIdentity", home.key, { externalId: "user_1" });
    await ok("deleteIdentity", home.key, { identityId });
    return { identityId, externalId: "user_1" };
  },
  "another workspace's identity": async ({ ok, newWorkspace }) => {
    const other = await newWorkspace();
    const { identityId } = await ok("createIdentity", other.key, { externalId: "user_1" });
    return { identityId, externalId: "user_1" };
  },
  "the two identifiers swapped": async ({ ok, home }) => {
    const { identityId } = await ok("createIdentity", home.key, { externalId: "user_1" });
    return { identityId: "user_1", externalId: identityId };
  },
};

function otherEnding(id: string): string {
  return id.slice(0, -1) + (id.endsWith("0") ? "1" : "0");
}

describe.each(Object.entries(causes))("an identity is not found for %s", (cause, arrange) => {
  for (const operation of ["getIdentity", "updateIdentity", "deleteIdentity"] as const) {
    const more = operation === "updateIdentity" ? { meta: { plan: "free" } } : {};
    everyProtocol(`${operation} with ${cause} is refused with identity_not_found`, async (scene) => {
      const { identityId, externalId } = await arrange(scene);
      const byEither =
        cause === "the two identifiers swapped" ? [] : [{ identity: identityId }, { identity: externalId }];
      for (const reference of [{ identityId }, { externalId }, ...byEither]) {
        const { detail, fields } = await scene.refused(code, operation, scene.home.key, { ...reference, ...more });
        expect(detail).toMatch(/requested identity could not be found/);
        expect(fields).toBeUndefined();
      }
    });
  }

  everyProtocol(`createKey with ${cause} as identityId is refused and stores nothing`, async (scene) => {
    const { identityId } = await arrange(scene);
    const identities = await scene.ok("listIdentities", scene.home.key);
    await scene.refused(code, "createKey", scene.home.key, { identityId });
    expect(await scene.ok("listKeys", scene.home.key)).toHaveLength(1);
    expect(await scene.ok("listIdentities", scene.home.key)).toEqual(identities);
  });

  everyProtocol(`updateKey with ${cause} as identityId is refused and changes nothing`, async (scene) => {
    const { keyId } = await scene.ok("createKey", scene.home.key, { externalId: "owner", name: "first" });
    const { identityId } = await arrange(scene);
    const before = await scene.ok("getKey", scene.home.key, { keyId });
    await scene.refused(code, "updateKey", scene.home.key, { keyId, identityId, name: "second" });
    expect(await scene.ok("getKey", scene.home.key, { keyId })).toEqual(before);
  });
});

describe("identity_not_found", () => {
  test("has exactly the HTTP response of the specification's section 7.2", async () => {
    const { app, protocols } = contract;
    const created = await protocols.grpc.call("createWorkspace", operatorKey, { name: "acme" });
    if (!created.ok) return expect.fail(created.detail);
    const { key } = created.data as { key: string };
    const response = await fetch(`${app.httpUrl}/v1/identities.getIdentity`, {
      method: "POST",
      headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
      body: JSON.stringify({ identityId: "id_123" }),
    });
    expect(response.status).toBe(404);
    expect(await response.json()).toEqual({
      meta: { requestId: response.headers.get("x-request-id") },
      error: {
        detail: expect.stringMatching(/requested identity could not be found/),
        status: 404,
        title: "Not Found",
        type: `${app.httpUrl}/api-reference/errors-v2/service/data/identity_not_found`,
      },
    });
  });

  everyProtocol(
    "tenant isolation: is identical for a deleted identity, another workspace's and one that never existed",
    async (scene) => {
      const other = await scene.newWorkspace();
      const foreign = await scene.ok("createIdentity", other.key, { externalId: "user_1" });
      const deleted = await scene.ok("createIdentity", scene.home.key, { externalId: "user_1" });
      await scene.ok("deleteIdentity", scene.home.key, deleted);
      const never = { identityId: otherEnding(deleted.identityId) };
      const refusals = [];
      for (const reference of [foreign, deleted, never]) {
        refusals.push(await scene.refused(code, "getIdentity", scene.home.key, reference));
      }
      expect(refusals[0]).toEqual(refusals[2]);
      expect(refusals[1]).toEqual(refusals[2]);
    },
  );

  everyProtocol("is no longer returned once the identity is created again", async (scene) => {
    await scene.refused(code, "getIdentity", scene.home.key, { externalId: "user_1" });
    await scene.ok("createIdentity", scene.home.key, { externalId: "user_1" });
    await scene.ok("getIdentity", scene.home.key, { externalId: "user_1" });
  });

  everyProtocol(
    "tenant isolation: is returned for every operation on another workspace's identity, which stays unchanged",
    async (scene) => {
      const other = await scene.newWorkspace();
      const { identityId } = await scene.ok("createIdentity", other.key, {
        externalId: "theirs",
        meta: { secret: true },
      });
      expect(await scene.ok("listIdentities", scene.home.key)).toEqual([]);
      for (const reference of [
        { identityId },
        { externalId: "theirs" },
        { identity: identityId },
        { identity: "theirs" },
      ]) {
        await scene.refused(code, "deleteIdentity", scene.home.key, reference);
      }
      await scene.ok("createKey", scene.home.key, { externalId: "theirs" });
      const own = await scene.ok("getIdentity", scene.home.key, { externalId: "theirs" });
      expect(own).toMatchObject({ meta: {} });
      expect(own.identityId).not.toBe(identityId);
      const theirs = await scene.ok("listIdentities", other.key);
      expect(theirs).toEqual([expect.objectContaining({ identityId, meta: { secret: true } })]);
      expect(await scene.ok("listKeys", other.key)).toHaveLength(1);
    },
  );
});
