import { randomBytes } from "node:crypto";
import type { CallRequest } from "../../support/clients/protocol-client.js";
import type { OperationName } from "../../support/operations.js";
import type { Stage } from "./stage.js";

/** Creates a request for the stage. */
export type MakeRequest = (stage: Stage) => CallRequest | Promise<CallRequest>;

/** A request of each operation that succeeds, with as many fields in the response as possible. */
export const succeeding: Record<OperationName, MakeRequest> = {
  listKeys: () => ({ limit: 1 }),
  createKey: (stage) => everySetting(stage),
  getKey: async (stage) => ({ keyId: (await newKey(stage)).keyId }),
  updateKey: async (stage) => {
    const credits = { remaining: 50, refill: null };
    return { keyId: (await newKey(stage)).keyId, name: null, externalId: "user_0", meta: null, credits };
  },
  deleteKey: async (stage) => ({ keyId: (await newKey(stage)).keyId }),
  rerollKey: async (stage) => ({ keyId: (await newKey(stage)).keyId, expiration: 60_000 }),
  verifyKey: async (stage) => ({
    key: (await newKey(stage)).key,
    permissions: "documents.read",
    credits: { cost: 2 },
    ratelimits: [
      { name: "requests", cost: 3 },
      { name: "tokens", ...perMinute },
    ],
    tags: ["path=/"],
  }),
  whoami: async (stage) => ({ key: (await newKey(stage)).key }),
  updateCredits: async (stage) => ({ keyId: (await newKey(stage)).keyId, operation: "increment", value: 5 }),
  addPermissions: async (stage) => ({ keyId: (await newKey(stage)).keyId, permissions: ["documents.write"] }),
  removePermissions: async (stage) => ({ keyId: (await newKey(stage)).keyId, permissions: ["documents.write"] }),
  setPermissions: async (stage) => ({ keyId: (await newKey(stage)).keyId, permissions: ["a.b", await newSlug(stage)] }),
  addRoles: async (stage) => ({ keyId: (await newKey(stage)).keyId, roles: [await newRole(stage)] }),
  removeRoles: async (stage) => ({ keyId: (await newKey(stage)).keyId, roles: ["nothing"] }),
  setRoles: async (stage) => ({ keyId: (await newKey(stage)).keyId, roles: [await newRole(stage)] }),
  migrateKeys: async (stage) => {
    const { name, externalId, meta, roles, permissions, expires, enabled, credits, ratelimits } =
      await everySetting(stage);
    const settings = { name, externalId, meta, roles, permissions, expires, enabled, credits, ratelimits };
    const known = { hash: newHash() };
    await stage.data("migrateKeys", { migrationId: "first", keys: [known] });
    return { migrationId: "second", apiId: await newApi(stage), keys: [{ hash: newHash(), ...settings }, known] };
  },
  getKeyUsage: async (stage) => ({
    keyId: (await newKey(stage)).keyId,
    period: { from: 0, to: 1, granularity: "day" },
  }),
  getIdentity: (stage) => newIdentity(stage),
  getIdentityUsage: (stage) => newIdentity(stage),
  createApi: () => ({ name: "documents" }),
  getApi: async (stage) => ({ apiId: await newApi(stage) }),
  listApis: async (stage) => {
    await newApi(stage);
    return { limit: 1 };
  },
  deleteApi: async (stage) => ({ apiId: await newApi(stage) }),
  createPermission: () => ({ name: "Read", slug: newName(), description: "all documents" }),
  getPermission: async (stage) => ({ permission: await newSlug(stage) }),
  listPermissions: async (stage) => {
    await newSlug(stage);
    return { limit: 1 };
  },
  deletePermission: async (stage) => ({ permission: await newSlug(stage) }),
  createRole: () => ({ name: newName(), description: "edits", permissions: ["documents.read"] }),
  getRole: async (stage) => ({ role: await newRole(stage) }),
  listRoles: async (stage) => {
    await newRole(stage);
    return { limit: 1 };
  },
  setRolePermissions: async (stage) => ({ roleId: await newRole(stage), permissions: ["documents.*"] }),
  deleteRole: async (stage) => ({ role: await newRole(stage) }),
  limit: async (stage) => ({ ...(await newOverride(stage)), ...perMinute, cost: 2 }),
  multiLimit: async (stage) => ({
    limits: [
      { ...(await newOverride(stage)), ...perMinute },
      { namespace: "sms.send", identifier: newName(), ...perMinute, cost: 0 },
    ],
  }),
  setOverride: () => ({ namespace: "email.send", identifier: `${newName()}*`, ...perMinute }),
  getOverride: (stage) => newOverride(stage),
  listOverrides: async (stage) => ({ namespace: (await newOverride(stage)).namespace, limit: 1 }),
  deleteOverride: (stage) => newOverride(stage),
  listIdentities: () => ({ limit: 1 }),
  createIdentity: () => ({ externalId: newName(), meta: { plan: "pro" }, ratelimits: [requestLimit] }),
  updateIdentity: async (stage) => ({ ...(await newIdentity(stage)), meta: { plan: "free" }, ratelimits: [] }),
  deleteIdentity: (stage) => newIdentity(stage),
  createWorkspace: () => ({ name: "another" }),
  createRootKey: ({ home }) => ({ workspaceId: home.workspaceId, name: "spare", scopes: ["keys.*"] }),
  getWorkspace: ({ home }) => ({ workspaceId: home.workspaceId }),
  listWorkspaces: () => ({ limit: 1 }),
  disableWorkspace: async ({ data }) => {
    const { workspaceId } = await data<{ workspaceId: string }>("createWorkspace", { name: "to be disabled" });
    return { workspaceId, reason: "UNPAID_BILLING", note: "invoice 1207" };
  },
  enableWorkspace: ({ home }) => ({ workspaceId: home.workspaceId }),
  updateWorkspace: ({ home }) => ({ workspaceId: home.workspaceId, name: "another name" }),
  deleteWorkspace: async ({ data }) => {
    const { workspaceId } = await data<{ workspaceId: string }>("createWorkspace", { name: "to be deleted" });
    await data("disableWorkspace", { workspaceId, reason: "ACCOUNT_CLOSURE" });
    return { workspaceId };
  },
  listAuditEvents: () => ({ since: 0 }),
};

/** Requests that each fail with another error that the RPC declares, called by a key if keys may call it. */
export const refused: Record<OperationName, readonly MakeRequest[]> = {
  listKeys: [() => ({ apiId: "none" })],
  createKey: [() => ({ identityId: "nobody" }), () => ({ apiId: "none" }), () => ({ roles: ["none"] })],
  getKey: [() => ({ keyId: "none" })],
  updateKey: [
    () => ({ keyId: "none", enabled: true }),
    ({ home }) => ({ keyId: home.keyId, identityId: "nobody" }),
    ({ home }) => ({ keyId: home.keyId, roles: ["none"] }),
  ],
  deleteKey: [() => ({ keyId: "none" })],
  rerollKey: [() => ({ keyId: "none" })],
  verifyKey: [],
  whoami: [() => ({ key: "none" })],
  updateCredits: [() => ({ keyId: "none", operation: "set", value: 1 })],
  addPermissions: [() => ({ keyId: "none", permissions: ["a"] })],
  removePermissions: [() => ({ keyId: "none", permissions: ["a"] })],
  setPermissions: [() => ({ keyId: "none", permissions: ["a"] })],
  addRoles: [
    async (stage) => ({ keyId: "none", roles: [await newRole(stage)] }),
    ({ home }) => ({ keyId: home.keyId, roles: ["none"] }),
  ],
  removeRoles: [async (stage) => ({ keyId: "none", roles: [await newRole(stage)] })],
  setRoles: [
    async (stage) => ({ keyId: "none", roles: [await newRole(stage)] }),
    ({ home }) => ({ keyId: home.keyId, roles: ["none"] }),
  ],
  migrateKeys: [
    () => ({ migrationId: "m", apiId: "none", keys: [{ hash: newHash() }] }),
    () => ({ migrationId: "m", keys: [{ hash: newHash(), roles: ["none"] }] }),
  ],
  getKeyUsage: [() => ({ keyId: "none" })],
  getIdentityUsage: [() => ({ identity: "nobody" })],
  createApi: [],
  getApi: [() => ({ apiId: "none" })],
  listApis: [],
  deleteApi: [() => ({ apiId: "none" })],
  createPermission: [async (stage) => ({ name: "again", slug: await newSlug(stage) })],
  getPermission: [() => ({ permission: "none" })],
  listPermissions: [],
  deletePermission: [
    () => ({ permission: "none" }),
    async (stage) => {
      const slug = await newSlug(stage);
      await stage.data("createRole", { name: newName(), permissions: [slug] });
      return { permission: slug };
    },
  ],
  createRole: [async (stage) => ({ name: await newRole(stage) })],
  getRole: [() => ({ role: "none" })],
  listRoles: [],
  setRolePermissions: [() => ({ roleId: "none" })],
  deleteRole: [() => ({ role: "none" })],
  limit: [],
  multiLimit: [],
  setOverride: [],
  getOverride: [() => ({ namespace: "email.send", identifier: "nobody" })],
  listOverrides: [],
  deleteOverride: [() => ({ namespace: "email.send", identifier: "nobody" })],
  getIdentity: [() => ({ identity: "nobody" })],
  listIdentities: [],
  createIdentity: [
    async ({ data }) => {
      const identity = { externalId: newName() };
      await data("createIdentity", identity);
      return identity;
    },
  ],
  updateIdentity: [() => ({ identityId: "nobody" })],
  deleteIdentity: [() => ({ externalId: "nobody" })],
  createWorkspace: [],
  createRootKey: [() => ({ workspaceId: "none" })],
  getWorkspace: [() => ({ workspaceId: "none" })],
  listWorkspaces: [],
  disableWorkspace: [() => ({ workspaceId: "none", reason: "OWNER_REQUEST" })],
  enableWorkspace: [() => ({ workspaceId: "none" })],
  updateWorkspace: [() => ({ workspaceId: "none", name: "another name" })],
  deleteWorkspace: [
    () => ({ workspaceId: "none" }),
    async ({ data }) => {
      const { workspaceId } = await data<{ workspaceId: string }>("createWorkspace", { name: "enabled" });
      return { workspaceId };
    },
  ],
  listAuditEvents: [() => ({ workspaceId: "another's" })],
};

const perMinute = { limit: 10, duration: 60_000 };
const requestLimit = { name: "requests", ...perMinute, autoApply: true };

async function newKey(stage: Stage): Promise<{ keyId: string; key: string }> {
  return stage.data("createKey", await everySetting(stage));
}

async function everySetting(stage: Stage): Promise<CallRequest> {
  return {
    name: "full",
    prefix: "acme",
    externalId: newName(),
    scopes: ["keys.verify"],
    permissions: ["documents.read"],
    meta: { deep: [{ er: null }] },
    expires: Date.now() + 86_400_000,
    enabled: true,
    apiId: await newApi(stage),
    roles: [await newRole(stage)],
    ratelimits: [requestLimit],
    credits: { remaining: 100, refill: { interval: "monthly", amount: 100, refillDay: 31 } },
    byteLength: 32,
    recoverable: false,
  };
}

async function newApi({ data }: Stage): Promise<string> {
  return (await data<{ apiId: string }>("createApi", { name: "payments" })).apiId;
}

/** The name of a new role. */
async function newRole({ data }: Stage): Promise<string> {
  const name = newName();
  await data("createRole", { name, description: "edits", permissions: ["documents.read", "documents:write"] });
  return name;
}

/** The slug of a new permission. */
async function newSlug({ data }: Stage): Promise<string> {
  const slug = newName();
  await data("createPermission", { name: "Read", slug, description: "all documents" });
  return slug;
}

async function newOverride({ data }: Stage): Promise<{ namespace: string; identifier: string }> {
  const override = { namespace: "email.send", identifier: newName() };
  await data("setOverride", { ...override, limit: 5, duration: 1_000 });
  return override;
}

function newHash(): string {
  return randomBytes(32).toString("base64");
}

function newIdentity({ data }: Stage): Promise<{ identityId: string }> {
  return data("createIdentity", { externalId: newName() });
}

let names = 0;

function newName(): string {
  names += 1;
  return `user_${names}`;
}
