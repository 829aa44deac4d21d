import { describe, expect } from "vitest";
import type { CallRequest } from "../support/clients/protocol-client.js";
import { keyOperations, type OperationName, operationOf } from "../support/operations.js";
import type { ResponseData } from "../support/responses.js";
import { openContract } from "./cases.js";
import { createFullKey, readAllSettings } from "./key-settings.js";
import type { Scene } from "./scene.js";

const { everyProtocol } = openContract();
const lacking = "authorization/insufficient_permissions";

/** A key and its identity, for operations to refer to. */
interface Things {
  readonly key: ResponseData["createKey"];
  readonly identityId: string;
  readonly externalId: string;
}

async function makeThings(scene: Scene): Promise<Things> {
  const key = await createFullKey(scene);
  const { identityId, externalId } = await scene.ok("getIdentity", scene.home.key, { externalId: "user_1" });
  return { key, identityId, externalId };
}

const nothing: Things = {
  key: { keyId: "key_01jcz0000000000000000000zz", key: "lk_unknown" },
  identityId: "id_01jcz0000000000000000000zz",
  externalId: "nobody",
};

/** Every operation that refers to a resource, with every kind of reference. */
const references: Partial<Record<OperationName, (things: Things) => CallRequest[]>> = {
  getKey: ({ key: { keyId } }) => [{ keyId }],
  updateKey: ({ key: { keyId } }) => [
    { keyId },
    { keyId, name: "x" },
    { keyId, scopes: ["*"] },
    { keyId, permissions: ["*"] },
  ],
  deleteKey: ({ key: { keyId } }) => [{ keyId }],
  rerollKey: ({ key: { keyId } }) => [{ keyId }, { keyId, expiration: 1000 }],
  verifyKey: ({ key: { key } }) => [{ key }, { key, permissions: "documents.read" }],
  whoami: ({ key: { key } }) => [{ key }],
  createKey: ({ identityId, externalId }) => [{ identityId }, { externalId }],
  createIdentity: ({ externalId }) => [{ externalId }],
  getIdentity: waysToRefer,
  updateIdentity: (things) => waysToRefer(things).map((reference) => ({ ...reference, meta: {} })),
  deleteIdentity: waysToRefer,
  listKeys: ({ externalId }) => [{ externalId }],
  listIdentities: ({ externalId }) => [{ search: externalId }],
  listAuditEvents: ({ key: { keyId }, identityId }) => [{ resourceId: keyId }, { resourceId: identityId }],
};

function waysToRefer({ identityId, externalId }: Things): CallRequest[] {
  return [{ identityId }, { externalId }, { identity: identityId }, { identity: externalId }];
}

const allScopes = [...new Set(keyOperations.flatMap((name) => operationOf(name).scope ?? []))];

function requestsOf(operation: OperationName, things: Things): CallRequest[] {
  return references[operation]?.(things) ?? expect.fail(`${operation} has no references here`);
}

describe("a caller without the scope", () => {
  everyProtocol("gets the same error from every operation, whether the resource exists or not", async (scene) => {
    const things = await makeThings(scene);
    const weak = await scene.ok("createKey", scene.home.key);
    for (const operation of keyOperations) {
      const { scope } = operationOf(operation);
      const others = allScopes.filter((name) => name !== scope);
      const strong = await scene.ok("createKey", scene.home.key, { scopes: others });
      const before = await readAllSettings(scene);
      const refusals = [];
      for (const request of [...requestsOf(operation, things), ...requestsOf(operation, nothing)]) {
        for (const { key } of [strong, weak]) refusals.push(await scene.refused(lacking, operation, key, request));
      }
      for (const refusal of refusals) expect(refusal, operation).toEqual(refusals[0]);
      expect(await readAllSettings(scene), operation).toEqual(before);
    }
    expect(await scene.ok("listIdentities", scene.home.key)).toHaveLength(1);
  });

  everyProtocol("learns no scope of a more powerful key that it may not reroll", async (scene) => {
    const { key } = await scene.ok("createKey", scene.home.key, { scopes: ["keys.create"] });
    const refusals = [];
    for (const scopes of [["payroll.approve"], ["*"], ["identities.read", "keys.create"]]) {
      const { keyId } = await scene.ok("createKey", scene.home.key, { scopes });
      refusals.push(await scene.refused(lacking, "rerollKey", key, { keyId }));
    }
    for (const refusal of refusals) expect(refusal).toEqual(refusals[0]);
  });
});

describe("tenant isolation: another workspace", () => {
  everyProtocol("can be neither read nor changed: every operation responds as if it were empty", async (scene) => {
    const things = await makeThings(scene);
    const keys = await readAllSettings(scene);
    const identities = await scene.ok("listIdentities", scene.home.key);
    const other = await scene.newWorkspace();
    const another = await scene.newWorkspace();
    for (const operation of keyOperations.filter((name) => !name.startsWith("create"))) {
      const unknown = requestsOf(operation, nothing);
      for (const [index, request] of requestsOf(operation, things).entries()) {
        const found = await scene.call(operation, other.key, request);
        expect(found, operation).toEqual(await scene.call(operation, another.key, unknown[index]));
      }
    }
    await scene.refused("data/identity_not_found", "createKey", other.key, { identityId: things.identityId });
    await scene.ok("createIdentity", other.key, { externalId: things.externalId });
    await scene.ok("createKey", other.key, { externalId: things.externalId });
    const [, theirs] = await scene.ok("listKeys", other.key);
    expect(theirs?.identity?.identityId).not.toBe(things.identityId);
    expect(await readAllSettings(scene)).toEqual(keys);
    expect(await scene.ok("listIdentities", scene.home.key)).toEqual(identities);
    expect(await scene.ok("verifyKey", scene.home.key, { key: things.key.key })).toMatchObject({ code: "VALID" });
  });
});
