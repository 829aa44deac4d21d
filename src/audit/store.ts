import type { JsonObject } from "@bufbuild/protobuf";
import type { Call } from "../call/call.js";
import type { Actor } from "../call/context.js";
import { mintId } from "../ids.js";
import type { PageRequest } from "../pagination.js";
import { callerUnchanged } from "../revocation/authorized-key.js";
import type { Fragment, Sql, Statement } from "../storage/postgres/connection.js";
import { readScannedPage, type ScannedPage, scannedPageOf } from "../storage/postgres/paging.js";
import { run } from "../storage/postgres/query.js";

/** An event as it is stored. */
export interface EventRow extends Omit<Actor, "key"> {
  readonly eventId: string;
  readonly at: Date;
  readonly workspaceId: string;
  readonly type: string;
  readonly resourceId: string;
  readonly before: JsonObject | null;
  readonly after: JsonObject | null;
}

/** Which events to list; what is undefined is not asked for. */
export interface EventFilter {
  readonly workspaceId: string | undefined;
  readonly type: string | undefined;
  readonly resourceId: string | undefined;
  readonly since: Date | undefined;
  readonly until: Date | undefined;
}

/** What was done to what. */
export type EventType =
  `${"key" | "identity" | "workspace"}.${"create" | "update" | "delete" | "reroll" | "disable" | "enable"}`;

/** What was done, and where its facts stand: `select workspace_id, resource_id, before, after from …`. */
export type AuditFact = readonly [type: EventType, facts: Fragment];

/**
 * The part of a statement that tells of the changes that its other parts make, in this order. A change and its event are
 * one statement, so neither is there without the other, and a change costs one round trip. Every change has this part, so
 * here it also carries its caller: it fails unless the calling key still is as it was authorized.
 */
export function insertAuditEvents(sql: Statement, by: Actor, ...changes: readonly AuditFact[]): Fragment {
  const rows = changes.map(
    ([type, facts]) => sql`
      select ${mintId("evt")}, ${type}, ${by.actor}, ${by.requestId}, now(), facts.*
      from (${facts}) as facts (workspace_id, resource_id, before, after)`,
  );
  return sql`
    insert into audit_events (event_id, type, actor, request_id, at, workspace_id, resource_id, before, after)
    select * from (${rows.reduce((all, one) => sql`${all} union all ${one}`)}) as changes where ${callerUnchanged(sql, by.key)}`;
}

/** For events of updates: there is none where the row says the same before (`b.before`) and after (`a.after`). */
export function hasChanged(sql: Statement): Fragment {
  return sql`audit_snapshot(b.before)::jsonb is distinct from audit_snapshot(a.after)::jsonb`;
}

export type AuditStore = ReturnType<typeof createAuditStore>;

export function createAuditStore(sql: Sql) {
  return {
    /** Newest first: `after` is the event that the page before ended with. */
    async listEvents(call: Call, filter: EventFilter, page: PageRequest): Promise<ScannedPage<EventRow>> {
      const { workspaceId, type, resourceId, since, until } = filter;
      const visible = workspaceId === undefined ? sql`true` : sql`workspace_id = ${workspaceId}`;
      // What there is an index for.
      const behind = all(sql, [
        visible,
        // Behind an event that is not visible there is nothing, as behind one that never was.
        page.after !== "" &&
          sql`position < (select position from audit_events where event_id = ${page.after} and ${visible})`,
        resourceId !== undefined && sql`resource_id = ${resourceId}`,
      ]);
      const filters = [
        type !== undefined && sql`type = ${type}`,
        since !== undefined && sql`at >= ${since}`,
        until !== undefined && sql`at < ${until}`,
      ];
      const columns = sql`event_id, workspace_id, type, actor, resource_id, request_id, at, before, after, position`;
      if (!filters.some(Boolean)) {
        const events = sql<EventRow[]>`
          select ${columns} from audit_events where ${behind} order by position desc limit ${page.limit + 1}`;
        return { rows: await run(call, events), scannedTo: undefined };
      }
      const events = scannedPageOf<EventRow>(sql, {
        rows: sql`select position, type, at from audit_events where ${behind} order by position desc`,
        column: sql`position`,
        direction: sql`desc`,
        filter: all(sql, filters),
        limit: page.limit,
        whole: sql`select ${columns} from audit_events where position`,
        id: (position) => sql`(select event_id from audit_events where position = ${position})`,
      });
      return readScannedPage(await run(call, events));
    },
  };
}

function all(sql: Statement, conditions: readonly (Fragment | false)[]): Fragment {
  return conditions.reduce<Fragment>((all, one) => (one ? sql`${all} and ${one}` : all), sql`true`);
}
