import type { DescMethodUnary } from "@bufbuild/protobuf";
import { IdentitiesService } from "../../gen/latchkey/v1/identities_service_pb.js";
import { KeysService } from "../../gen/latchkey/v1/keys_service_pb.js";
import { WorkspacesService } from "../../gen/latchkey/v1/workspaces_service_pb.js";

/** An HTTP method and a path, as the specification writes them. */
export type HttpRoute = readonly ["GET" | "POST", string];

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

/** Every operation, written by hand from the specification and API.md, not read from the code under test. */
export const operations = {
  listKeys: {
    rpc: KeysService.method.listKeys,
    routes: [
      ["POST", "/v1/keys.listKeys"],
      ["POST", "/v2/keys.listKeys"],
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
