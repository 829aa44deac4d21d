import { hasChanged, insertAuditEvents } from "../audit/store.js";
import type { Call, IdempotencyRecord } from "../call/call.js";
import type { Actor } from "../call/context.js";
import { insertIdempotencyRecord } from "../idempotency/store.js";
import { keyCreated, keyCreation, type NewKey } from "../keys/store.js";
import type { PageRequest } from "../pagination.js";
import type { Fragment, InSnapshot, Sql } from "../storage/postgres/connection.js";
import { run, runForAll } from "../storage/postgres/query.js";

/** A workspace as it is stored. It is disabled while it has a `disabledAt`. */
export interface WorkspaceRow {
  readonly workspaceId: string;
  readonly name: string;
  readonly disabledAt: Date | null;
  readonly disabledReason: string | null;
  readonly disabledNote: string | null;
  readonly createdAt: Date;
}

export type WorkspacesStore = ReturnType<typeof createWorkspacesStore>;

export function createWorkspacesStore(sql: Sql) {
  const columns = sql`workspace_id, name, disabled_at, disabled_reason, disabled_note, created_at`;

  /** Changes a workspace by what comes after `set`, and tells of it. Undefined if there is no such workspace. */
  async function change(
    call: Call,
    workspaceId: string,
    type: "workspace.disable" | "workspace.enable",
    assignments: Fragment,
    by: Actor,
  ): Promise<WorkspaceRow | undefined> {
    const told = sql`
      select (a.after).workspace_id, (a.after).workspace_id, audit_snapshot(b.before), audit_snapshot(a.after)
        from before b, after a
        where ${hasChanged(sql)}`;
    const [row] = await run(
      call,
      sql<WorkspaceRow[]>`
      with before as (
          select workspaces as before from workspaces where workspace_id = ${workspaceId} for no key update),
        after as (
          update workspaces set ${assignments} from before
          where workspaces.workspace_id = (before).workspace_id returning workspaces as after),
        events as (${insertAuditEvents(sql, by, [type, told])})
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
      by: Actor,
      answer: IdempotencyRecord | undefined,
    ): Promise<void> {
      const told = sql`select (made).workspace_id, (made).workspace_id, null::json, audit_snapshot(made) from made`;
      await run(
        call,
        sql`
        with made as (
            insert into workspaces (workspace_id, name, created_at) values (${workspaceId}, ${name}, now())
            returning workspaces as made),
          ${keyCreation(sql, firstKey, sql`select null`)},
          events as (${insertAuditEvents(sql, by, ["workspace.create", told], keyCreated(sql))})
          ${insertIdempotencyRecord(sql, answer, sql`created`)}
        select from created`,
      );
    },

    /** False if there is no such workspace; then nothing is stored. */
    async insertRootKey(call: Call, key: NewKey, by: Actor, answer: IdempotencyRecord | undefined): Promise<boolean> {
      const ofNobody = sql`select null from workspaces where workspace_id = ${key.workspaceId}`;
      const created = await run(
        call,
        sql`
        with ${keyCreation(sql, key, ofNobody)},
          events as (${insertAuditEvents(sql, by, keyCreated(sql))})
          ${insertIdempotencyRecord(sql, answer, sql`created`)}
        select from created`,
      );
      return created.length === 1;
    },

    async findWorkspace(call: Call, workspaceId: string): Promise<WorkspaceRow | undefined> {
      const [row] = await run(
        call,
        sql<WorkspaceRow[]>`select ${columns} from workspaces where workspace_id = ${workspaceId}`,
      );
      return row;
    },

    async listWorkspaces(call: Call, page: PageRequest): Promise<WorkspaceRow[]> {
      return run(
        call,
        sql<WorkspaceRow[]>`
        select ${columns} from workspaces where workspace_id > ${page.after}
        order by workspace_id limit ${page.limit + 1}`,
      );
    },

    /** A workspace that is disabled already keeps the moment it was disabled at. */
    disableWorkspace: (call: Call, workspaceId: string, reason: string, note: string | null, by: Actor) =>
      change(
        call,
        workspaceId,
        "workspace.disable",
        sql`disabled_at = coalesce(disabled_at, now()), disabled_reason = ${reason}, disabled_note = ${note}`,
        by,
      ),

    enableWorkspace: (call: Call, workspaceId: string, by: Actor) =>
      change(
        call,
        workspaceId,
        "workspace.enable",
        sql`disabled_at = null, disabled_reason = null, disabled_note = null`,
        by,
      ),

    /** One statement, hence one snapshot: no change that it includes is missing. */
    async readWorkspaceState(workspaceId: string, call?: Call): Promise<InSnapshot<{ enabled: boolean }> | undefined> {
      const [row] = await runForAll(
        call,
        sql<InSnapshot<{ enabled: boolean }>[]>`
        select disabled_at is null as enabled, pg_current_snapshot()::text as snapshot
        from workspaces where workspace_id = ${workspaceId}`,
      );
      return row;
    },
  };
}
