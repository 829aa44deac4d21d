import { insertAuditEvents, updateFacts } from "../audit/store.js";
import type { Call, IdempotencyRecord } from "../call/call.js";
import type { Actor } from "../call/context.js";
import { insertIdempotencyRecord } from "../idempotency/store.js";
import type { NewKey } from "../keys/rows.js";
import { keyCreated, keyCreation } from "../keys/statement-parts.js";
import type { PageRequest } from "../pagination.js";
import type { WorkspaceState } from "../revocation/key-state.js";
import type { InSnapshot } from "../storage/postgres/connection.js";
import type { Database } from "../storage/postgres/database.js";
import { type Fragment, sql } from "../storage/postgres/sql.js";

/** A workspace as it is stored. It is disabled while it has a `disabledAt`. */
export interface WorkspaceRow {
  readonly workspaceId: string;
  readonly name: string;
  readonly disabledAt: Date | null;
  readonly disabledReason: string | null;
  readonly disabledNote: string | null;
  readonly createdAt: Date;
}

/** What became of a deletion. */
export type WorkspaceDeletion = "deleted" | "deleted before" | "enabled";

export type WorkspacesStore = ReturnType<typeof createWorkspacesStore>;

export function createWorkspacesStore(db: Database) {
  const columns = sql`workspace_id, name, disabled_at, disabled_reason, disabled_note, created_at`;

  /** Updates a workspace and inserts the audit event. Undefined if there is no such workspace, or it was deleted. */
  async function change(
    call: Call,
    workspaceId: string,
    type: "workspace.disable" | "workspace.enable" | "workspace.update",
    assignments: Fragment,
    actor: Actor,
  ): Promise<WorkspaceRow | undefined> {
    const event = updateFacts(sql`workspace_id`);
    const [row] = await db.run(
      call,
      sql<WorkspaceRow[]>`
        with before as (
            select workspaces as before from workspaces
            where workspace_id = ${workspaceId} and deleted_at is null for no key update),
          after as (
            update workspaces set ${assignments} from before
            where workspaces.workspace_id = (before).workspace_id returning workspaces as after),
          events as (${insertAuditEvents(actor, [type, event])})
        select ${columns} from (select (after).* from after) as changed`,
    );
    return row;
  }

  return {
    async insertWorkspace(
      call: Call,
      workspaceId: string,
      name: string,
      firstKey: NewKey,
      actor: Actor,
      record: IdempotencyRecord | undefined,
    ): Promise<void> {
      const event = sql`select (made).workspace_id, (made).workspace_id, null::json, audit_snapshot(made) from made`;
      await db.run(
        call,
        sql`
          with made as (
              insert into workspaces (workspace_id, name, created_at) values (${workspaceId}, ${name}, now())
              returning workspaces as made),
            ${keyCreation(firstKey, sql`select null`)},
            events as (${insertAuditEvents(actor, ["workspace.create", event], keyCreated)})
            ${insertIdempotencyRecord(record, sql`created`)}
          select from created`,
      );
    },

    /** False if there is no such workspace; then nothing is stored. */
    async insertRootKey(
      call: Call,
      key: NewKey,
      actor: Actor,
      record: IdempotencyRecord | undefined,
    ): Promise<boolean> {
      // Locked: the key exists before a concurrent deletion of the workspace, or not at all.
      const noIdentity = sql`select null from workspace`;
      const created = await db.run(
        call,
        sql`
          with workspace as (
              select from workspaces where workspace_id = ${key.workspaceId} and deleted_at is null for key share),
            ${keyCreation(key, noIdentity)},
            events as (${insertAuditEvents(actor, keyCreated)})
            ${insertIdempotencyRecord(record, sql`created`)}
          select from created`,
      );
      return created.length === 1;
    },

    async findWorkspace(call: Call, workspaceId: string): Promise<WorkspaceRow | undefined> {
      const [row] = await db.run(
        call,
        sql<WorkspaceRow[]>`
          select ${columns} from workspaces where workspace_id = ${workspaceId} and deleted_at is null`,
      );
      return row;
    },

    async listWorkspaces(call: Call, page: PageRequest): Promise<WorkspaceRow[]> {
      return db.run(
        call,
        sql<WorkspaceRow[]>`
          select ${columns} from workspaces where workspace_id > ${page.after} and deleted_at is null
          order by workspace_id limit ${page.limit + 1}`,
      );
    },

    /** A workspace that is already disabled keeps its `disabledAt`. */
    disableWorkspace: (call: Call, workspaceId: string, reason: string, note: string | null, actor: Actor) =>
      change(
        call,
        workspaceId,
        "workspace.disable",
        sql`disabled_at = coalesce(disabled_at, now()), disabled_reason = ${reason}, disabled_note = ${note}`,
        actor,
      ),

    enableWorkspace: (call: Call, workspaceId: string, actor: Actor) =>
      change(
        call,
        workspaceId,
        "workspace.enable",
        sql`disabled_at = null, disabled_reason = null, disabled_note = null`,
        actor,
      ),

    updateWorkspace: (call: Call, workspaceId: string, name: string | undefined, actor: Actor) =>
      change(call, workspaceId, "workspace.update", sql`name = coalesce(${name ?? null}, name)`, actor),

    /**
     * Deletes a disabled workspace: from then on it is unknown to every statement, and cannot be enabled again. None of the
     * rows in it changes; see src/retention/erasure.ts. Undefined if there is no such workspace.
     */
    async deleteWorkspace(call: Call, workspaceId: string, actor: Actor): Promise<WorkspaceDeletion | undefined> {
      const event = sql`
        select (before).workspace_id, (before).workspace_id, audit_snapshot(before), null::json from before, deleted`;
      // Locked for update: a concurrent statement that stores something in this workspace holds a key share lock.
      const [row] = await db.run(
        call,
        sql<{ result: WorkspaceDeletion }[]>`
          with before as (
              select workspaces as before from workspaces where workspace_id = ${workspaceId} for update),
            deleted as (
              update workspaces set deleted_at = now(), name = '', disabled_note = null from before
              where workspaces.workspace_id = (before).workspace_id and (before).deleted_at is null
                and (before).disabled_at is not null
              returning workspaces.workspace_id),
            events as (${insertAuditEvents(actor, ["workspace.delete", event])})
          select case when (before).deleted_at is not null then 'deleted before'
            when (before).disabled_at is null then 'enabled' else 'deleted' end as result
          from before left join deleted on true`,
      );
      return row?.result;
    },

    /** One statement has one snapshot: the row includes every change of the snapshot. */
    async readWorkspaceState(workspaceId: string, call?: Call): Promise<InSnapshot<WorkspaceState> | undefined> {
      const [row] = await db.readShared(
        call,
        sql<InSnapshot<WorkspaceState>[]>`
          select disabled_at is null as enabled, has_imports, primary_snapshot() as snapshot
          from workspaces where workspace_id = ${workspaceId} and deleted_at is null`,
      );
      return row;
    },
  };
}
