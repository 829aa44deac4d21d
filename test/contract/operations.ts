import type { DescMethodUnary } from "@bufbuild/protobuf";
import { IdentitiesService } from "../../gen/latchkey/v1/identities_service_pb.js";
import { KeysService } from "../../gen/latchkey/v1/keys_service_pb.js";
import { WorkspacesService } from "../../gen/latchkey/v1/workspaces_service_pb.js";

/** An HTTP method and a path, as the specification writes them. */
export type HttpRoute = readonly ["GET" | "POST", string];

/** One operation of the contract: its RPC, its documented HTTP routes and who may call it. */
export interface Operation {
  readonly rpc: DescMethodUnary;
  /** The first is the one that the HTTP door uses. */
  readonly routes: readonly [HttpRoute, ...HttpRoute[]];
  /** The field of the RPC's response that is `data` over HTTP; left out where the whole response is. */
  readonly data?: string;
  /** The permission that a key needs; left out where only the operator may call. */
  readonly permission?: string;
  /** A request whose form is right, whether or not what it refers to exists. */
  readonly wellFormed: Readonly<Record<string, unknown>>;
  /** A request that every door can send and that must be refused for its form. */
  readonly malformed: Readonly<Record<string, unknown>>;
}

/** Every operation, written out by hand from the specification and API.md, not read from the code under test. */
export const operations = {
  listKeys: {
    rpc: KeysService.method.listKeys,
    routes: [
      ["POST", "/v1/keys.listKeys"],
      ["POST", "/v2/keys.listKeys"],
    ],
    data: "keys",
    permission: "keys.read",
    wellFormed: {},
    malformed: { limit: 0 },
  },
  createKey: {
    rpc: KeysService.method.createKey,
    routes: [["POST", "/v2/keys.createKey"]],
    permission: "keys.create",
    wellFormed: {},
    malformed: { prefix: "not a prefix" },
  },
  getIdentity: {
    rpc: IdentitiesService.method.getIdentity,
    routes: [
      ["POST", "/v1/identities.getIdentity"],
      ["POST", "/v2/identities.getIdentity"],
    ],
    data: "identity",
    permission: "identities.read",
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
    permission: "identities.read",
    wellFormed: {},
    malformed: { limit: 101 },
  },
  createIdentity: {
    rpc: IdentitiesService.method.createIdentity,
    routes: [["POST", "/v2/identities.createIdentity"]],
    permission: "identities.create",
    wellFormed: { externalId: "user_1" },
    malformed: { externalId: "" },
  },
  deleteIdentity: {
    rpc: IdentitiesService.method.deleteIdentity,
    routes: [["POST", "/v2/identities.deleteIdentity"]],
    permission: "identities.delete",
    wellFormed: { externalId: "user_1" },
    malformed: { identityId: "" },
  },
  createWorkspace: {
    rpc: WorkspacesService.method.createWorkspace,
    routes: [["POST", "/v2/workspaces.createWorkspace"]],
    wellFormed: { name: "acme" },
    malformed: { name: "" },
  },
  getWorkspace: {
    rpc: WorkspacesService.method.getWorkspace,
    routes: [["POST", "/v2/workspaces.getWorkspace"]],
    data: "workspace",
    wellFormed: { workspaceId: "ws_00000000000000000000000000" },
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
    wellFormed: { workspaceId: "ws_00000000000000000000000000", reason: "OWNER_REQUEST" },
    malformed: { workspaceId: "" },
  },
  enableWorkspace: {
    rpc: WorkspacesService.method.enableWorkspace,
    routes: [["POST", "/v2/workspaces.enableWorkspace"]],
    data: "workspace",
    wellFormed: { workspaceId: "ws_00000000000000000000000000" },
    malformed: { workspaceId: "" },
  },
} as const satisfies Record<string, Operation>;

/** The name of an operation. */
export type OperationName = keyof typeof operations;

/** The operation of a name, as the doors need it. */
export function operationOf(name: OperationName): Operation {
  return operations[name];
}

const names = Object.keys(operations) as OperationName[];

/** The operations that a workspace's key may call. */
export const keyOperations = names.filter((name) => operationOf(name).permission !== undefined);

/** The operations that only the operator may call. */
export const operatorOperations = names.filter((name) => operationOf(name).permission === undefined);
