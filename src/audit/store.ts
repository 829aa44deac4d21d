import type { JsonObject } from "@bufbuild/protobuf";
import type { Call } from "../call/call.js";
import type { Actor } from "../call/context.js";
import { mintId } from "../ids.js";
import type { PageRequest } from "../pagination.js";
import { callerUnchanged } from "../revocation/authorized-key.js";
import type { Database } from "../storage/postgres/database.js";
import { readScannedPage, type ScannedPage, scannedPageOf } from "../storage/postgres/paging.js";
import { type Fragment, sql } from "../storage/postgres/sql.js";

/** A stored audit event. */
export interface EventRow extends Omit<Actor, "key"> {
  readonly eventId: string;
  readonly at: Date;
  readonly workspaceId: string;
  readonly type: string;
  readonly resourceId: string;
  readonly before: JsonObject | null;
  readonly after: JsonObject | null;
}

/** The events to list. An undefined field does not filter. */
export interface EventFilter {
  readonly workspaceId: string | undefined;
  readonly type: string | undefined;
  readonly resourceId: string | undefined;
  readonly since: Date | undefined;
  readonly until: Date | undefined;
}

export type EventType =
  | "key.updateCredits"
  | `${"key" | "identity" | "workspace" | "api" | "role" | "permission" | "override"}.${"create" | "update" | "delete" | "reroll" | "disable" | "enable"}`;

/**
 * The type of an event, and its data: `select workspace_id, resource_id, before, after from …`. If there can be several rows,
 * they have ids of their own: `select workspace_id, resource_id, before, after, event_id from …`.
 */
export type AuditFact = readonly [type: EventType, facts: Fragment, ids?: "own ids"];

/**
 * The part of a statement that inserts the audit events of its other parts, in this order. A change and its event are one
 * statement: neither exists without the other, and a change costs one round trip. Every change has this part, so the check
 * of the caller is here, too: the statement fails unless the calling key is as it was when the call was authorized.
 */
export function insertAuditEvents(actor: Actor, ...changes: readonly AuditFact[]): Fragment {
  const rows = changes.map(
    ([type, facts, ids]) => sql`
      select ${ids ? sql`event_id` : sql`${mintId("evt")}`}, ${type}, ${actor.actor}, ${actor.requestId}, now(),
        facts.workspace_id, resource_id, before, after
      from (${facts}) as facts (workspace_id, resource_id, before, after ${ids ? sql`, event_id` : sql``})`,
  );
  return sql`
    insert into audit_events (event_id, type, actor, request_id, at, workspace_id, resource_id, before, after)
    select * from (${rows.reduce((all, one) => sql`${all} union all ${one}`)}) as changes where ${callerUnchanged(actor.key)}`;
}

/**
 * The facts of an update event, from the parts `before` and `after` of a statement. None if the resource is as it was. The
 * subquery has an offset, so that PostgreSQL computes each snapshot once, and not for each use.
 *
 * @param id the column with the id of the resource
 */
export function updateFacts(id: Fragment): Fragment {
  return sql`
    select workspace_id, resource_id, before, after from (
      select (a.after).workspace_id, (a.after).${id} as resource_id, audit_snapshot(b.before) as before,
        audit_snapshot(a.after) as after
      from before b, after a offset 0) as snapshots
    where before::jsonb is distinct from after::jsonb`;
}

export type AuditStore = ReturnType<typeof createAuditStore>;

export function createAuditStore(db: Database) {
  return {
    /** Newest first. `page.after` is the last event of the page before. */
    async listEvents(call: Call, filter: EventFilter, page: PageRequest): Promise<ScannedPage<EventRow>> {
      const { type, since, until } = filter;
      const columns = sql`event_id, workspace_id, type, actor, resource_id, request_id, at, before, after, position`;
      const { condition, order } = newestFirst(filter, page.after);
      if (type === undefined && since === undefined && until === undefined) {
        const rows = await db.run(
          call,
          sql<EventRow[]>`
            select ${columns} from audit_events where ${condition}
            order by ${order} limit ${page.limit + 1}`,
        );
        return { rows, scannedTo: undefined };
      }
      const rows = await db.run(
        call,
        scannedPageOf<EventRow>({
          rows: sql`select position, type, at from audit_events where ${condition} order by ${order}`,
          column: sql`position`,
          direction: sql`desc`,
          filter: all([
            type !== undefined && sql`type = ${type}`,
            since !== undefined && sql`at >= ${since}`,
            until !== undefined && sql`at < ${until}`,
          ]),
          limit: page.limit,
          whole: sql`select ${columns} from audit_events where position`,
          id: (position) => sql`(select event_id from audit_events where position = ${position})`,
        }),
      );
      return readScannedPage(rows);
    },
  };
}

/**
 * Selects the events of a workspace, of a resource or of all, newest first, in an order that only one index has. With
 * `resource_id = …`, the order of all events would serve as well, and if the resource seems to have many of them, the planner
 * may scan those of all other workspaces first.
 */
function newestFirst(
  { workspaceId, resourceId }: EventFilter,
  after: string,
): { readonly condition: Fragment; readonly order: Fragment } {
  const isVisible = workspaceId === undefined ? sql`true` : sql`workspace_id = ${workspaceId}`;
  // After an event of another workspace there is nothing, as after one that does not exist.
  const end =
    after === ""
      ? sql`9223372036854775807`
      : sql`coalesce((select case when ${isVisible} then position end from audit_events where event_id = ${after}), 0)`;
  const inOrderOf = (column: Fragment, value: string) => ({
    condition: sql`(${column}, position) < (${value}, ${end}) and ${column} >= ${value}`,
    order: sql`${column} desc, position desc`,
  });
  if (resourceId !== undefined) {
    const { condition, order } = inOrderOf(sql`resource_id`, resourceId);
    // A resource belongs to one workspace, and so do all of its events. PostgreSQL evaluates this once: no event of another
    // workspace is scanned.
    const isOfWorkspace = sql`${workspaceId ?? null} = (
      select workspace_id from audit_events where (resource_id, position) > (${resourceId}, 0)
      order by resource_id, position limit 1)`;
    return { condition: workspaceId === undefined ? condition : sql`${condition} and ${isOfWorkspace}`, order };
  }
  if (workspaceId !== undefined) return inOrderOf(sql`workspace_id`, workspaceId);
  return { condition: sql`position < ${end}`, order: sql`position desc` };
}

function all(conditions: readonly (Fragment | false)[]): Fragment {
  return conditions.reduce<Fragment>((all, one) => (one ? sql`${all} and ${one}` : all), sql`true`);
}
