import type { DescMethodUnary } from "@bufbuild/protobuf";
import { ApisService } from "../../gen/latchkey/v1/apis_service_pb.js";
import { IdentitiesService } from "../../gen/latchkey/v1/identities_service_pb.js";
import { KeysService } from "../../gen/latchkey/v1/keys_service_pb.js";
import { PermissionsService } from "../../gen/latchkey/v1/permissions_service_pb.js";
import { RateLimitsService } from "../../gen/latchkey/v1/rate_limits_service_pb.js";
import { WorkspacesService } from "../../gen/latchkey/v1/workspaces_service_pb.js";

/**
 * An HTTP method and a path, as the specification writes them. The third element is the field whose value is the whole
 * body, if there is one.
 */
export type HttpRoute = readonly [method: "GET" | "POST", path: string, bodyField?: string];

/** One operation of the contract: its RPC, its documented HTTP routes, and its authorization. */
export interface Operation {
  readonly rpc: DescMethodUnary;
  /** The HTTP client uses the first. */
  readonly routes: readonly [HttpRoute, ...HttpRoute[]];
  /** The field of the RPC's response that is `data` over HTTP. Omitted if the whole response is. */
  readonly data?: string;
  /** The scope that a key needs. Omitted if only the operator may call. */
  readonly scope?: string;
  /** Whether the operator may call as well as keys. */
  readonly alsoOperator?: true;
  /** Whether it accepts an Idempotency-Key. */
  readonly acceptsIdempotencyKey?: true;
  /** A valid request, whether or not the resources it refers to exist. */
  readonly wellFormed: Readonly<Record<string, unknown>>;
  /** A request that every protocol can send, and that must fail validation. */
  readonly malformed: Readonly<Record<string, unknown>>;
}

const noKey = "key_00000000000000000000000000";
const noWorkspace = "ws_00000000000000000000000000";
const noApi = "api_00000000000000000000000000";
const noRole = "role_00000000000000000000000000";
const noPermission = "perm_00000000000000000000000000";

/** The SHA-256 hash of a secret that no test uses. */
const someHash = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";

const ofUser = { namespace: "email.send", identifier: "user_1" };
const perMinute = { limit: 10, duration: 60_000 };

/** Every operation, written by hand from the specification and API.md, not read from the code under test. */
export const operations = {
  listKeys: {
    rpc: KeysService.method.listKeys,
    routes: [
      ["POST", "/v1/keys.listKeys"],
      ["POST", "/v2/keys.listKeys"],
      ["POST", "/v2/apis.listKeys"],
    ],
    data: "keys",
    scope: "keys.read",
    wellFormed: {},
    malformed: { limit: 0 },
  },
  createKey: {
    rpc: KeysService.method.createKey,
    routes: [["POST", "/v2/keys.createKey"]],
    scope: "keys.create",
    acceptsIdempotencyKey: true,
    wellFormed: {},
    malformed: { prefix: "not a prefix" },
  },
  getKey: {
    rpc: KeysService.method.getKey,
    routes: [["POST", "/v2/keys.getKey"]],
    data: "key",
    scope: "keys.read",
    wellFormed: { keyId: noKey },
    malformed: { keyId: "" },
  },
  updateKey: {
    rpc: KeysService.method.updateKey,
    routes: [["POST", "/v2/keys.updateKey"]],
    data: "key",
    scope: "keys.update",
    wellFormed: { keyId: noKey, enabled: false },
    malformed: { keyId: noKey, name: "" },
  },
  deleteKey: {
    rpc: KeysService.method.deleteKey,
    routes: [["POST", "/v2/keys.deleteKey"]],
    scope: "keys.delete",
    wellFormed: { keyId: noKey },
    malformed: { keyId: "" },
  },
  rerollKey: {
    rpc: KeysService.method.rerollKey,
    routes: [["POST", "/v2/keys.rerollKey"]],
    scope: "keys.create",
    acceptsIdempotencyKey: true,
    wellFormed: { keyId: noKey, expiration: 1000 },
    malformed: { keyId: noKey, expiration: -1 },
  },
  verifyKey: {
    rpc: KeysService.method.verifyKey,
    routes: [["POST", "/v2/keys.verifyKey"]],
    scope: "keys.verify",
    wellFormed: { key: "lk_unknown" },
    malformed: { key: "lk_unknown", permissions: "documents.read AND" },
  },
  whoami: {
    rpc: KeysService.method.whoami,
    routes: [["POST", "/v2/keys.whoami"]],
    data: "key",
    scope: "keys.read",
    wellFormed: { key: "lk_unknown" },
    malformed: { key: "" },
  },
  updateCredits: {
    rpc: KeysService.method.updateCredits,
    routes: [["POST", "/v2/keys.updateCredits"]],
    data: "credits",
    scope: "keys.update",
    acceptsIdempotencyKey: true,
    wellFormed: { keyId: noKey, operation: "set", value: 10 },
    malformed: { keyId: noKey, operation: "double", value: 10 },
  },
  addPermissions: {
    rpc: KeysService.method.addPermissions,
    routes: [["POST", "/v2/keys.addPermissions"]],
    data: "permissions",
    scope: "keys.update",
    wellFormed: { keyId: noKey, permissions: ["documents.read"] },
    malformed: { keyId: noKey, permissions: ["not a permission"] },
  },
  removePermissions: {
    rpc: KeysService.method.removePermissions,
    routes: [["POST", "/v2/keys.removePermissions"]],
    data: "permissions",
    scope: "keys.update",
    wellFormed: { keyId: noKey, permissions: ["documents.read"] },
    malformed: { keyId: noKey, permissions: ["not a permission"] },
  },
  setPermissions: {
    rpc: KeysService.method.setPermissions,
    routes: [["POST", "/v2/keys.setPermissions"]],
    data: "permissions",
    scope: "keys.update",
    wellFormed: { keyId: noKey, permissions: ["documents.read"] },
    malformed: { keyId: noKey, permissions: ["not a permission"] },
  },
  addRoles: {
    rpc: KeysService.method.addRoles,
    routes: [["POST", "/v2/keys.addRoles"]],
    data: "roles",
    scope: "keys.update",
    wellFormed: { keyId: noKey, roles: ["editor"] },
    malformed: { keyId: noKey, roles: [""] },
  },
  removeRoles: {
    rpc: KeysService.method.removeRoles,
    routes: [["POST", "/v2/keys.removeRoles"]],
    data: "roles",
    scope: "keys.update",
    wellFormed: { keyId: noKey, roles: ["editor"] },
    malformed: { keyId: noKey, roles: [""] },
  },
  setRoles: {
    rpc: KeysService.method.setRoles,
    routes: [["POST", "/v2/keys.setRoles"]],
    data: "roles",
    scope: "keys.update",
    wellFormed: { keyId: noKey, roles: ["editor"] },
    malformed: { keyId: noKey, roles: [""] },
  },
  migrateKeys: {
    rpc: KeysService.method.migrateKeys,
    routes: [["POST", "/v2/keys.migrateKeys"]],
    scope: "keys.create",
    acceptsIdempotencyKey: true,
    wellFormed: { migrationId: "from another service", keys: [{ hash: someHash }] },
    malformed: { migrationId: "from another service", keys: [{ hash: "not a hash" }] },
  },
  getKeyUsage: {
    rpc: KeysService.method.getKeyUsage,
    routes: [["POST", "/v2/keys.getUsage"]],
    data: "usage",
    scope: "keys.read",
    wellFormed: { keyId: noKey },
    malformed: { keyId: noKey, tag: "" },
  },
  getIdentity: {
    rpc: IdentitiesService.method.getIdentity,
    routes: [
      ["POST", "/v1/identities.getIdentity"],
      ["POST", "/v2/identities.getIdentity"],
    ],
    data: "identity",
    scope: "identities.read",
    wellFormed: { externalId: "user_1" },
    malformed: {},
  },
  listIdentities: {
    rpc: IdentitiesService.method.listIdentities,
    routes: [
      ["GET", "/v1/identities.listIdentities"],
      ["POST", "/v2/identities.listIdentities"],
    ],
    data: "identities",
    scope: "identities.read",
    wellFormed: {},
    malformed: { limit: 101 },
  },
  createIdentity: {
    rpc: IdentitiesService.method.createIdentity,
    routes: [["POST", "/v2/identities.createIdentity"]],
    scope: "identities.create",
    acceptsIdempotencyKey: true,
    wellFormed: { externalId: "user_1" },
    malformed: { externalId: "" },
  },
  updateIdentity: {
    rpc: IdentitiesService.method.updateIdentity,
    routes: [["POST", "/v2/identities.updateIdentity"]],
    data: "identity",
    scope: "identities.update",
    wellFormed: { externalId: "user_1", meta: { plan: "pro" } },
    malformed: { identityId: "" },
  },
  deleteIdentity: {
    rpc: IdentitiesService.method.deleteIdentity,
    routes: [["POST", "/v2/identities.deleteIdentity"]],
    scope: "identities.delete",
    wellFormed: { externalId: "user_1" },
    malformed: { identityId: "" },
  },
  getIdentityUsage: {
    rpc: IdentitiesService.method.getIdentityUsage,
    routes: [["POST", "/v2/identities.getUsage"]],
    data: "usage",
    scope: "identities.read",
    wellFormed: { externalId: "user_1" },
    malformed: {},
  },
  createApi: {
    rpc: ApisService.method.createApi,
    routes: [["POST", "/v2/apis.createApi"]],
    scope: "apis.create",
    acceptsIdempotencyKey: true,
    wellFormed: { name: "payments" },
    malformed: { name: "" },
  },
  getApi: {
    rpc: ApisService.method.getApi,
    routes: [["POST", "/v2/apis.getApi"]],
    data: "api",
    scope: "apis.read",
    wellFormed: { apiId: noApi },
    malformed: { apiId: "" },
  },
  listApis: {
    rpc: ApisService.method.listApis,
    routes: [["POST", "/v2/apis.listApis"]],
    data: "apis",
    scope: "apis.read",
    wellFormed: {},
    malformed: { limit: 0 },
  },
  deleteApi: {
    rpc: ApisService.method.deleteApi,
    routes: [["POST", "/v2/apis.deleteApi"]],
    scope: "apis.delete",
    wellFormed: { apiId: noApi },
    malformed: { apiId: "" },
  },
  createPermission: {
    rpc: PermissionsService.method.createPermission,
    routes: [["POST", "/v2/permissions.createPermission"]],
    scope: "permissions.create",
    acceptsIdempotencyKey: true,
    wellFormed: { name: "Read documents", slug: "documents.read" },
    malformed: { name: "Read documents", slug: "documents.*" },
  },
  getPermission: {
    rpc: PermissionsService.method.getPermission,
    routes: [["POST", "/v2/permissions.getPermission"]],
    data: "permission",
    scope: "permissions.read",
    wellFormed: { permission: noPermission },
    malformed: { permission: "" },
  },
  listPermissions: {
    rpc: PermissionsService.method.listPermissions,
    routes: [["POST", "/v2/permissions.listPermissions"]],
    data: "permissions",
    scope: "permissions.read",
    wellFormed: {},
    malformed: { limit: 0 },
  },
  deletePermission: {
    rpc: PermissionsService.method.deletePermission,
    routes: [["POST", "/v2/permissions.deletePermission"]],
    scope: "permissions.delete",
    wellFormed: { permission: noPermission },
    malformed: { permission: "" },
  },
  createRole: {
    rpc: PermissionsService.method.createRole,
    routes: [["POST", "/v2/permissions.createRole"]],
    scope: "roles.create",
    acceptsIdempotencyKey: true,
    wellFormed: { name: "editor", permissions: ["documents.read"] },
    malformed: { name: "editor", permissions: ["not a permission"] },
  },
  getRole: {
    rpc: PermissionsService.method.getRole,
    routes: [["POST", "/v2/permissions.getRole"]],
    data: "role",
    scope: "roles.read",
    wellFormed: { role: noRole },
    malformed: { role: "" },
  },
  listRoles: {
    rpc: PermissionsService.method.listRoles,
    routes: [["POST", "/v2/permissions.listRoles"]],
    data: "roles",
    scope: "roles.read",
    wellFormed: {},
    malformed: { limit: 0 },
  },
  setRolePermissions: {
    rpc: PermissionsService.method.setRolePermissions,
    routes: [["POST", "/v2/permissions.setRolePermissions"]],
    data: "permissions",
    scope: "roles.update",
    wellFormed: { roleId: noRole, permissions: ["documents.read"] },
    malformed: { roleId: noRole, permissions: ["not a permission"] },
  },
  deleteRole: {
    rpc: PermissionsService.method.deleteRole,
    routes: [["POST", "/v2/permissions.deleteRole"]],
    scope: "roles.delete",
    wellFormed: { role: noRole },
    malformed: { role: "" },
  },
  limit: {
    rpc: RateLimitsService.method.limit,
    routes: [["POST", "/v2/ratelimit.limit"]],
    scope: "ratelimit.limit",
    wellFormed: { ...ofUser, ...perMinute },
    malformed: { ...ofUser, ...perMinute, limit: 0 },
  },
  multiLimit: {
    rpc: RateLimitsService.method.multiLimit,
    routes: [["POST", "/v2/ratelimit.multiLimit", "limits"]],
    scope: "ratelimit.limit",
    wellFormed: { limits: [{ ...ofUser, ...perMinute }] },
    malformed: { limits: [{ ...ofUser, ...perMinute, duration: 10 }] },
  },
  setOverride: {
    rpc: RateLimitsService.method.setOverride,
    routes: [["POST", "/v2/ratelimit.setOverride"]],
    scope: "ratelimit.update",
    wellFormed: { ...ofUser, ...perMinute },
    malformed: { ...ofUser, ...perMinute, limit: -1 },
  },
  getOverride: {
    rpc: RateLimitsService.method.getOverride,
    routes: [["POST", "/v2/ratelimit.getOverride"]],
    data: "override",
    scope: "ratelimit.read",
    wellFormed: ofUser,
    malformed: { ...ofUser, identifier: "" },
  },
  listOverrides: {
    rpc: RateLimitsService.method.listOverrides,
    routes: [["POST", "/v2/ratelimit.listOverrides"]],
    data: "overrides",
    scope: "ratelimit.read",
    wellFormed: { namespace: "email.send" },
    malformed: { namespace: "email.send", limit: 0 },
  },
  deleteOverride: {
    rpc: RateLimitsService.method.deleteOverride,
    routes: [["POST", "/v2/ratelimit.deleteOverride"]],
    scope: "ratelimit.delete",
    wellFormed: ofUser,
    malformed: { ...ofUser, identifier: "" },
  },
  createWorkspace: {
    rpc: WorkspacesService.method.createWorkspace,
    routes: [["POST", "/v2/workspaces.createWorkspace"]],
    acceptsIdempotencyKey: true,
    wellFormed: { name: "acme" },
    malformed: { name: "" },
  },
  createRootKey: {
    rpc: WorkspacesService.method.createRootKey,
    routes: [["POST", "/v2/workspaces.createRootKey"]],
    acceptsIdempotencyKey: true,
    wellFormed: { workspaceId: noWorkspace },
    malformed: { workspaceId: "" },
  },
  getWorkspace: {
    rpc: WorkspacesService.method.getWorkspace,
    routes: [["POST", "/v2/workspaces.getWorkspace"]],
    data: "workspace",
    wellFormed: { workspaceId: noWorkspace },
    malformed: { workspaceId: "" },
  },
  listWorkspaces: {
    rpc: WorkspacesService.method.listWorkspaces,
    routes: [["POST", "/v2/workspaces.listWorkspaces"]],
    data: "workspaces",
    wellFormed: {},
    malformed: { limit: 0 },
  },
  disableWorkspace: {
    rpc: WorkspacesService.method.disableWorkspace,
    routes: [["POST", "/v2/workspaces.disableWorkspace"]],
    data: "workspace",
    wellFormed: { workspaceId: noWorkspace, reason: "OWNER_REQUEST" },
    malformed: { workspaceId: "" },
  },
  enableWorkspace: {
    rpc: WorkspacesService.method.enableWorkspace,
    routes: [["POST", "/v2/workspaces.enableWorkspace"]],
    data: "workspace",
    wellFormed: { workspaceId: noWorkspace },
    malformed: { workspaceId: "" },
  },
  updateWorkspace: {
    rpc: WorkspacesService.method.updateWorkspace,
    routes: [["POST", "/v2/workspaces.updateWorkspace"]],
    data: "workspace",
    wellFormed: { workspaceId: noWorkspace, name: "Acme Ltd" },
    malformed: { workspaceId: noWorkspace, name: "" },
  },
  deleteWorkspace: {
    rpc: WorkspacesService.method.deleteWorkspace,
    routes: [["POST", "/v2/workspaces.deleteWorkspace"]],
    wellFormed: { workspaceId: noWorkspace },
    malformed: { workspaceId: "" },
  },
  listAuditEvents: {
    rpc: WorkspacesService.method.listAuditEvents,
    routes: [["POST", "/v2/workspaces.listAuditEvents"]],
    data: "events",
    scope: "audit.read",
    alsoOperator: true,
    wellFormed: {},
    malformed: { limit: 0 },
  },
} as const satisfies Record<string, Operation>;

/** The name of an operation. */
export type OperationName = keyof typeof operations;

/** The operation with this name. */
export function operationOf(name: OperationName): Operation {
  return operations[name];
}

const names = Object.keys(operations) as OperationName[];

/** The operations that a workspace's key may call. */
export const keyOperations = names.filter((name) => operationOf(name).scope !== undefined);

/** The operations that only the operator may call. */
export const operatorOperations = names.filter((name) => operationOf(name).scope === undefined);

/** The operations that accept an Idempotency-Key. */
export const idempotentOperations = names.filter((name) => operationOf(name).acceptsIdempotencyKey);

/** The path of an RPC in gRPC, gRPC-Web and Connect. */
export function pathOf({ parent, name }: Pick<DescMethodUnary, "parent" | "name">): string {
  return `/${parent.typeName}/${name}`;
}
