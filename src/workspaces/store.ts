import type { JsonObject } from "@bufbuild/protobuf";
import { type Author, recordChange } from "../audit/store.js";
import { addKey, type NewKey } from "../keys/store.js";
import type { PageRequest } from "../page.js";
import { type Fragment, type Sql, transact } from "../storage/postgres.js";

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

  /** Changes a workspace by what comes after `set`, and tells of it. Undefined if there is no such workspace. */
  function change(
    workspaceId: string,
    type: "workspace.disable" | "workspace.enable",
    assignments: Fragment,
    by: Author,
  ): Promise<WorkspaceRow | undefined> {
    return transact(sql, async (transaction) => {
      const [before] = await transaction<WorkspaceRow[]>`
        select ${columns} from workspaces where workspace_id = ${workspaceId} for no key update`;
      if (before === undefined) return undefined;
      const [after] = await transaction<WorkspaceRow[]>`
        update workspaces set ${assignments} where workspace_id = ${workspaceId} returning ${columns}`;
      if (after === undefined) throw new Error("a workspace vanished while it was locked");
      const event = { workspaceId, type, resourceId: workspaceId };
      await recordChange(transaction, by, { ...event, before: told(before), after: told(after) });
      return after;
    });
  }

  return {
    async insertWorkspace(workspaceId: string, name: string, firstKey: NewKey, by: Author): Promise<void> {
      await transact(sql, async (transaction) => {
        const [row] = await transaction<WorkspaceRow[]>`
          insert into workspaces (workspace_id, name, created_at) values (${workspaceId}, ${name}, ${by.at})
          returning ${columns}`;
        if (row === undefined) throw new Error("a workspace was not stored");
        const event = { workspaceId, type: "workspace.create", resourceId: workspaceId } as const;
        await recordChange(transaction, by, { ...event, before: null, after: told(row) });
        await addKey(transaction, firstKey, null, by);
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
    disableWorkspace: (workspaceId: string, reason: string, note: string | null, by: Author) =>
      change(
        workspaceId,
        "workspace.disable",
        sql`disabled_at = coalesce(disabled_at, ${by.at}), disabled_reason = ${reason}, disabled_note = ${note}`,
        by,
      ),

    enableWorkspace: (workspaceId: string, by: Author) =>
      change(
        workspaceId,
        "workspace.enable",
        sql`disabled_at = null, disabled_reason = null, disabled_note = null`,
        by,
      ),

    /** One statement, hence one snapshot: the state is no older than its epoch. */
    async readState(workspaceId: string): Promise<WorkspaceState | undefined> {
      const [row] = await sql<WorkspaceState[]>`
        select disabled_at is null as enabled, (select value from epoch) as epoch
        from workspaces where workspace_id = ${workspaceId}`;
      return row;
    },
  };
}

/** A workspace as the audit tells it. */
function told({ name, disabledAt, disabledReason, disabledNote }: WorkspaceRow): JsonObject {
  return { name, enabled: disabledAt === null, disabledReason, disabledNote };
}
