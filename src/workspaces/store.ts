import { insertKey, type NewKey } from "../keys/store.js";
import type { PageRequest } from "../page.js";
import type { Sql } from "../storage/postgres.js";

/** A workspace as it is stored. It is disabled while it has a `disabledAt`. */
export interface WorkspaceRow {
  readonly workspaceId: string;
  readonly name: string;
  readonly disabledAt: Date | null;
  readonly disabledReason: string | null;
  readonly disabledNote: string | null;
  readonly createdAt: Date;
}

/** Whether a workspace is enabled, and the epoch of the snapshot in which that was read. */
export interface WorkspaceState {
  readonly enabled: boolean;
  readonly epoch: bigint;
}

export type WorkspacesStore = ReturnType<typeof createWorkspacesStore>;

export function createWorkspacesStore(sql: Sql) {
  const columns = sql`workspace_id, name, disabled_at, disabled_reason, disabled_note, created_at`;

  return {
    async insertWorkspace(workspace: { workspaceId: string; name: string; createdAt: Date }, firstKey: NewKey) {
      await sql.begin(async (transaction) => {
        await transaction`
          insert into workspaces (workspace_id, name, created_at)
          values (${workspace.workspaceId}, ${workspace.name}, ${workspace.createdAt})`;
        await insertKey(transaction, firstKey, null);
      });
    },

    async findWorkspace(workspaceId: string): Promise<WorkspaceRow | undefined> {
      const [row] = await sql<WorkspaceRow[]>`select ${columns} from workspaces where workspace_id = ${workspaceId}`;
      return row;
    },

    async listWorkspaces(page: PageRequest): Promise<WorkspaceRow[]> {
      return sql<WorkspaceRow[]>`
        select ${columns} from workspaces where workspace_id > ${page.after}
        order by workspace_id limit ${page.limit + 1}`;
    },

    /** A workspace that is disabled already keeps the moment it was disabled at. */
    async disableWorkspace(workspaceId: string, at: Date, reason: string, note: string | null) {
      const [row] = await sql<WorkspaceRow[]>`
        update workspaces set disabled_at = coalesce(disabled_at, ${at}), disabled_reason = ${reason}, disabled_note = ${note}
        where workspace_id = ${workspaceId} returning ${columns}`;
      return row;
    },

    async enableWorkspace(workspaceId: string): Promise<WorkspaceRow | undefined> {
      const [row] = await sql<WorkspaceRow[]>`
        update workspaces set disabled_at = null, disabled_reason = null, disabled_note = null
        where workspace_id = ${workspaceId} returning ${columns}`;
      return row;
    },

    /** One statement, hence one snapshot: the state is no older than its epoch. */
    async readState(workspaceId: string): Promise<WorkspaceState | undefined> {
      const [row] = await sql<WorkspaceState[]>`
        select disabled_at is null as enabled, (select value from epoch) as epoch
        from workspaces where workspace_id = ${workspaceId}`;
      return row;
    },
  };
}
