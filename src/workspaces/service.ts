import type { WorkspacesService } from "../../gen/latchkey/v1/workspaces_service_pb.js";
import { toAuditEvent, toFilter } from "../audit/convert.js";
import type { AuditStore } from "../audit/store.js";
import { actorOf, type Handlers, type Principal } from "../call/context.js";
import { workspaceEnabled, workspaceNotFound } from "../errors.js";
import { mintId } from "../ids.js";
import type { NewKey } from "../keys/rows.js";
import { type MintedSecret, mintSecret } from "../keys/secret.js";
import { buildPage, parsePageRequest } from "../pagination.js";
import type { KeyCache } from "../revocation/key-cache.js";
import { toWorkspace, writeReason } from "./convert.js";
import type { WorkspacesStore } from "./store.js";

/** The workspaces, for the operator, and their audit events. */
export function createWorkspacesService(store: WorkspacesStore, keyCache: KeyCache, audit: AuditStore) {
  return {
    async createWorkspace({ name }, context) {
      const secret = mintSecret();
      const workspaceId = mintId("ws");
      const firstKey = rootKey(workspaceId, secret, "first key", ["*"]);
      const response = { workspaceId, keyId: firstKey.keyId, key: secret.plaintext };
      const by = actorOf(context);
      await store.insertWorkspace(context.call, workspaceId, name, firstKey, by, context.record?.(response));
      return response;
    },

    async createRootKey({ workspaceId, name = "root key", scopes }, context) {
      const secret = mintSecret();
      const key = rootKey(workspaceId, secret, name, scopes.length > 0 ? scopes : ["*"]);
      const response = { keyId: key.keyId, key: secret.plaintext };
      const by = actorOf(context);
      if (!(await store.insertRootKey(context.call, key, by, context.record?.(response)))) throw workspaceNotFound();
      return response;
    },

    async getWorkspace({ workspaceId }, context) {
      const row = await store.findWorkspace(context.call, workspaceId);
      if (row === undefined) throw workspaceNotFound();
      return { workspace: toWorkspace(row) };
    },

    async listWorkspaces(request, context) {
      const page = parsePageRequest("workspaces", request);
      const found = await store.listWorkspaces(context.call, page);
      const { rows, pagination } = buildPage("workspaces", page, found, (row) => row.workspaceId);
      return { workspaces: rows.map(toWorkspace), pagination };
    },

    async disableWorkspace({ workspaceId, reason, note }, context) {
      context.call.revokes = true;
      const by = actorOf(context);
      const row = await store.disableWorkspace(context.call, workspaceId, writeReason(reason), note ?? null, by);
      if (row === undefined) throw workspaceNotFound();
      await keyCache.awaitPropagation();
      return { workspace: toWorkspace(row) };
    },

    async enableWorkspace({ workspaceId }, context) {
      const row = await store.enableWorkspace(context.call, workspaceId, actorOf(context));
      if (row === undefined) throw workspaceNotFound();
      await keyCache.awaitPropagation();
      return { workspace: toWorkspace(row) };
    },

    async updateWorkspace({ workspaceId, name }, context) {
      const row = await store.updateWorkspace(context.call, workspaceId, name, actorOf(context));
      if (row === undefined) throw workspaceNotFound();
      return { workspace: toWorkspace(row) };
    },

    async deleteWorkspace({ workspaceId }, context) {
      context.call.revokes = true;
      const timeline = keyCache.knownTimeline();
      const result = await store.deleteWorkspace(context.call, workspaceId, actorOf(context));
      if (result === undefined) throw workspaceNotFound();
      if (result === "enabled") throw workspaceEnabled();
      // Also if it was deleted before: a retrying client may not know how its first attempt ended.
      const isDeleted = result === "deleted";
      await (isDeleted ? keyCache.awaitPropagation() : keyCache.awaitEarlierChanges(context.call, timeline));
      return {};
    },

    async listAuditEvents(request, context) {
      const page = parsePageRequest("events", request);
      const found = await audit.listEvents(
        context.call,
        toFilter(request, visibleTo(context.caller, request.workspaceId)),
        page,
      );
      const { rows, pagination } = buildPage("events", page, found.rows, (row) => row.eventId, found.scannedTo);
      return { events: rows.map(toAuditEvent), pagination };
    },
  } satisfies Handlers<typeof WorkspacesService>;
}

/** A key that the operator creates: without an owner, and without an expiry. */
function rootKey(workspaceId: string, { hash, start }: MintedSecret, name: string, scopes: readonly string[]): NewKey {
  const settings = {
    enabled: true,
    permissions: [],
    roles: [],
    apiId: null,
    ratelimits: [],
    credits: null,
    meta: null,
    expiresAt: null,
  };
  return { keyId: mintId("key"), workspaceId, hash, start, name, scopes, ...settings };
}

/** Tenant isolation: the operator sees every workspace, a key only its own. */
function visibleTo(caller: Principal, requested: string | undefined): string | undefined {
  if (caller.kind === "operator") return requested;
  if (requested !== undefined && requested !== caller.workspaceId) throw workspaceNotFound();
  return caller.workspaceId;
}
