import type { WorkspacesService } from "../../gen/latchkey/v1/workspaces_service_pb.js";
import type { Handlers } from "../auth/principal.js";
import type { WorkspaceStates } from "../auth/workspace-states.js";
import { workspaceNotFound } from "../errors.js";
import { mintId } from "../ids.js";
import { mintSecret } from "../keys/secret.js";
import { readPage, writePage } from "../page.js";
import { toWorkspace, writeReason } from "./convert.js";
import type { WorkspacesStore } from "./store.js";

/** The workspaces, for the operator. */
export function createWorkspacesService(store: WorkspacesStore, states: WorkspaceStates, now: () => Date) {
  return {
    async createWorkspace({ name }) {
      const createdAt = now();
      const secret = mintSecret();
      const workspace = { workspaceId: mintId("ws"), name, createdAt };
      const firstKey = {
        keyId: mintId("key"),
        workspaceId: workspace.workspaceId,
        hash: secret.hash,
        start: secret.start,
        name: "first key",
        enabled: true,
        permissions: ["*"],
        meta: null,
        expiresAt: null,
        createdAt,
      };
      await store.insertWorkspace(workspace, firstKey);
      return { workspaceId: workspace.workspaceId, keyId: firstKey.keyId, key: secret.plaintext };
    },

    async getWorkspace({ workspaceId }) {
      const row = await store.findWorkspace(workspaceId);
      if (row === undefined) throw workspaceNotFound();
      return { workspace: toWorkspace(row) };
    },

    async listWorkspaces(request) {
      const page = readPage("workspaces", request);
      const found = await store.listWorkspaces(page);
      const { rows, pagination } = writePage("workspaces", page, found, (row) => row.workspaceId);
      return { workspaces: rows.map(toWorkspace), pagination };
    },

    async disableWorkspace({ workspaceId, reason, note }) {
      const row = await store.disableWorkspace(workspaceId, now(), writeReason(reason), note ?? null);
      if (row === undefined) throw workspaceNotFound();
      await states.refresh(workspaceId);
      return { workspace: toWorkspace(row) };
    },

    async enableWorkspace({ workspaceId }) {
      const row = await store.enableWorkspace(workspaceId);
      if (row === undefined) throw workspaceNotFound();
      await states.refresh(workspaceId);
      return { workspace: toWorkspace(row) };
    },
  } satisfies Handlers<typeof WorkspacesService>;
}
