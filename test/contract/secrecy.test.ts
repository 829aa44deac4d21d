import { describe, expect } from "vitest";
import type { CallRequest } from "../support/clients/protocol-client.js";
import { keyOperations, type OperationName, operationOf } from "../support/operations.js";
import type { ResponseData } from "../support/responses.js";
import { newHash } from "./callers.js";
import { openContract } from "./cases.js";
import { createFullKey, readAllSettings } from "./key-settings.js";
import type { Scene } from "./scene.js";

const { everyProtocol } = openContract();
const lacking = "authorization/insufficient_permissions";

/** A resource of each kind, for operations to refer to. */
interface Things {
  readonly key: ResponseData["createKey"];
  readonly identityId: string;
  readonly externalId: string;
  readonly apiId: string;
  readonly roleId: string;
  readonly roleName: string;
  readonly permissionId: string;
  readonly slug: string;
  readonly override: { readonly namespace: string; readonly identifier: string };
}

async function makeThings(scene: Scene): Promise<Things> {
  const { ok, home } = scene;
  const [roleName, slug] = ["editor", "documents.edit"];
  const override = { namespace: "email.send", identifier: "user_1" };
  const { apiId } = await ok("createApi", home.key, { name: "payments" });
  const { roleId } = await ok("createRole", home.key, { name: roleName, permissions: ["documents.read"] });
  const { permissionId } = await ok("createPermission", home.key, { name: "Edit documents", slug });
  await ok("setOverride", home.key, { ...override, ...perMinute });
  const key = await createFullKey(scene, { apiId, roles: [roleName] });
  const { identityId, externalId } = await ok("getIdentity", home.key, { externalId: "user_1" });
  return { key, identityId, externalId, apiId, roleId, roleName, permissionId, slug, override };
}

const perMinute = { limit: 10, duration: 60_000 };

const nothing: Things = {
  key: { keyId: "key_01jcz0000000000000000000zz", key: "lk_unknown" },
  identityId: "id_01jcz0000000000000000000zz",
  externalId: "nobody",
  apiId: "api_01jcz0000000000000000000zz",
  roleId: "role_01jcz0000000000000000000zz",
  roleName: "nothing",
  permissionId: "perm_01jcz0000000000000000000zz",
  slug: "documents.none",
  override: { namespace: "email.none", identifier: "nobody" },
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
  updateCredits: ({ key: { keyId } }) => [{ keyId, operation: "increment", value: 1 }],
  addPermissions: changePermissions,
  removePermissions: changePermissions,
  setPermissions: changePermissions,
  addRoles: changeRoles,
  removeRoles: changeRoles,
  setRoles: changeRoles,
  migrateKeys: ({ apiId, roleName }) => [
    { migrationId: "m", apiId, keys: [{ hash: newHash() }] },
    { migrationId: "m", keys: [{ hash: newHash(), roles: [roleName] }] },
  ],
  getKeyUsage: ({ key: { keyId } }) => [{ keyId }, { keyId, tag: "path=/" }],
  getIdentityUsage: waysToRefer,
  createApi: () => [{ name: "payments" }],
  getApi: ({ apiId }) => [{ apiId }],
  listApis: () => [{}],
  deleteApi: ({ apiId }) => [{ apiId }],
  createPermission: ({ slug }) => [{ name: "Edit documents", slug }],
  getPermission: ({ permissionId, slug }) => [{ permission: permissionId }, { permission: slug }],
  listPermissions: ({ slug }) => [{ search: slug }],
  deletePermission: ({ permissionId, slug }) => [{ permission: permissionId }, { permission: slug }],
  createRole: ({ roleName }) => [{ name: roleName }],
  getRole: ({ roleId, roleName }) => [{ role: roleId }, { role: roleName }],
  listRoles: ({ roleName }) => [{ search: roleName }],
  setRolePermissions: ({ roleId, roleName }) => [{ roleId }, { roleId: roleName, permissions: ["*"] }],
  deleteRole: ({ roleId, roleName }) => [{ role: roleId }, { role: roleName }],
  limit: ({ override }) => [{ ...override, ...perMinute }],
  multiLimit: ({ override }) => [{ limits: [{ ...override, ...perMinute }] }],
  setOverride: ({ override }) => [{ ...override, ...perMinute }],
  getOverride: ({ override }) => [override],
  listOverrides: ({ override: { namespace } }) => [{ namespace }],
  deleteOverride: ({ override }) => [override],
  createKey: ({ identityId, externalId, apiId, roleName }) => [
    { identityId },
    { externalId },
    { apiId },
    { roles: [roleName] },
  ],
  createIdentity: ({ externalId }) => [{ externalId }],
  getIdentity: waysToRefer,
  updateIdentity: (things) => waysToRefer(things).map((reference) => ({ ...reference, meta: {} })),
  deleteIdentity: waysToRefer,
  listKeys: ({ externalId, apiId }) => [{ externalId }, { apiId }],
  listIdentities: ({ externalId }) => [{ search: externalId }],
  listAuditEvents: ({ key: { keyId }, identityId }) => [{ resourceId: keyId }, { resourceId: identityId }],
};

function changePermissions({ key: { keyId } }: Things): CallRequest[] {
  return [{ keyId, permissions: ["documents.read"] }];
}

function changeRoles({ key: { keyId }, roleId, roleName }: Things): CallRequest[] {
  return [
    { keyId, roles: [roleId] },
    { keyId, roles: [roleName] },
  ];
}

function waysToRefer({ identityId, externalId }: Things): CallRequest[] {
  return [{ identityId }, { externalId }, { identity: identityId }, { identity: externalId }];
}

const allScopes = [...new Set(keyOperations.flatMap((name) => operationOf(name).scope ?? []))];

function resourceOf(scope: string): string {
  return scope.split(".")[0] ?? scope;
}

function requestsOf(operation: OperationName, things: Things): CallRequest[] {
  return references[operation]?.(things) ?? expect.fail(`${operation} has no references here`);
}

describe("a caller without the scope", () => {
  for (const resource of new Set(allScopes.map(resourceOf))) {
    const guarantee = `gets the same error from every operation on ${resource}, whether the resource exists or not`;
    everyProtocol(guarantee, async (scene) => {
      const things = await makeThings(scene);
      const weak = await scene.ok("createKey", scene.home.key);
      for (const operation of keyOperations) {
        const { scope = "" } = operationOf(operation);
        if (resourceOf(scope) !== resource) continue;
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
  }

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

/** Operations that need no existing resource, and whose responses contain new ids or times. Others test them. */
const without = new Set<OperationName>(["limit", "multiLimit", "setOverride", "migrateKeys"]);

/** A response as text, without the values that the request contains. */
async function responseTo(scene: Scene, operation: OperationName, key: string, request: CallRequest): Promise<string> {
  const given = Object.values(request)
    .flat()
    .filter((value) => typeof value === "string");
  const text = JSON.stringify(await scene.call(operation, key, request));
  return given.reduce((shown, value) => shown.replaceAll(value, "given"), text);
}

describe("tenant isolation: another workspace", () => {
  everyProtocol("can be neither read nor changed: every operation responds as if it were empty", async (scene) => {
    const things = await makeThings(scene);
    const keys = await readAllSettings(scene);
    const identities = await scene.ok("listIdentities", scene.home.key);
    const other = await scene.newWorkspace();
    const another = await scene.newWorkspace();
    for (const operation of keyOperations.filter((name) => !name.startsWith("create") && !without.has(name))) {
      const unknown = requestsOf(operation, nothing);
      for (const [index, request] of requestsOf(operation, things).entries()) {
        const [found, missed] = [request, unknown[index] ?? {}];
        expect(await responseTo(scene, operation, other.key, found), operation).toEqual(
          await responseTo(scene, operation, another.key, missed),
        );
      }
    }
    await scene.refused("data/identity_not_found", "createKey", other.key, { identityId: things.identityId });
    for (const name of [things.roleName, things.roleId]) {
      await scene.refused("data/role_not_found", "createKey", other.key, { roles: [name] });
    }
    await scene.refused("data/api_not_found", "createKey", other.key, { apiId: things.apiId });
    const [byApi, byRole] = requestsOf("migrateKeys", things);
    await scene.refused("data/api_not_found", "migrateKeys", other.key, byApi);
    await scene.refused("data/role_not_found", "migrateKeys", other.key, byRole);
    await scene.ok("createRole", other.key, { name: things.roleName });
    await scene.ok("createPermission", other.key, { name: "Edit", slug: things.slug });
    await scene.ok("createIdentity", other.key, { externalId: things.externalId });
    await scene.ok("createKey", other.key, { externalId: things.externalId });
    const [, theirs] = await scene.ok("listKeys", other.key);
    expect(theirs?.identity?.identityId).not.toBe(things.identityId);
    expect(await readAllSettings(scene)).toEqual(keys);
    expect(await scene.ok("listIdentities", scene.home.key)).toEqual(identities);
    expect(await scene.ok("verifyKey", scene.home.key, { key: things.key.key })).toMatchObject({ code: "VALID" });
  });
});
