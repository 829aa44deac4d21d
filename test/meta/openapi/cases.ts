import type { CallRequest } from "../../support/clients/protocol-client.js";
import type { OperationName } from "../../support/operations.js";
import type { Stage } from "./stage.js";

/** Creates a request for the stage. */
export type MakeRequest = (stage: Stage) => CallRequest | Promise<CallRequest>;

/** A request of each operation that succeeds, with as many fields in the response as possible. */
export const succeeding: Record<OperationName, MakeRequest> = {
  listKeys: () => ({ limit: 1 }),
  createKey: () => everySetting(),
  getKey: async (stage) => ({ keyId: (await newKey(stage)).keyId }),
  updateKey: async (stage) => ({ keyId: (await newKey(stage)).keyId, name: null, externalId: "user_0", meta: null }),
  deleteKey: async (stage) => ({ keyId: (await newKey(stage)).keyId }),
  rerollKey: async (stage) => ({ keyId: (await newKey(stage)).keyId, expiration: 60_000 }),
  verifyKey: async (stage) => ({ key: (await newKey(stage)).key, permissions: "documents.read" }),
  whoami: async (stage) => ({ key: (await newKey(stage)).key }),
  getIdentity: (stage) => newIdentity(stage),
  listIdentities: () => ({ limit: 1 }),
  createIdentity: () => ({ externalId: newName(), meta: { plan: "pro" } }),
  updateIdentity: async (stage) => ({ ...(await newIdentity(stage)), meta: { plan: "free" } }),
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
  listAuditEvents: () => ({ since: 0 }),
};

/** Requests that each fail with another error that the RPC declares, called by a key if keys may call it. */
export const refused: Record<OperationName, readonly MakeRequest[]> = {
  listKeys: [],
  createKey: [() => ({ identityId: "nobody" })],
  getKey: [() => ({ keyId: "none" })],
  updateKey: [() => ({ keyId: "none", enabled: true }), ({ home }) => ({ keyId: home.keyId, identityId: "nobody" })],
  deleteKey: [() => ({ keyId: "none" })],
  rerollKey: [() => ({ keyId: "none" })],
  verifyKey: [],
  whoami: [() => ({ key: "none" })],
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
  listAuditEvents: [() => ({ workspaceId: "another's" })],
};

function newKey({ data }: Stage): Promise<{ keyId: string; key: string }> {
  return data("createKey", everySetting());
}

function everySetting(): CallRequest {
  return {
    name: "full",
    prefix: "acme",
    externalId: newName(),
    scopes: ["keys.verify"],
    permissions: ["documents.read"],
    meta: { deep: [{ er: null }] },
    expires: Date.now() + 86_400_000,
    enabled: true,
  };
}

function newIdentity({ data }: Stage): Promise<{ identityId: string }> {
  return data("createIdentity", { externalId: newName() });
}

let names = 0;

function newName(): string {
  names += 1;
  return `user_${names}`;
}
