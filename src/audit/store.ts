import type { JsonObject } from "@bufbuild/protobuf";
import { mintId } from "../ids.js";
import type { PageRequest } from "../page.js";
import { type Fragment, jsonText, type Sql, type Statement } from "../storage/postgres.js";

/** Who makes a change, in which request, and when. */
export interface Author {
  /** `operator`, or the keyId of the key that calls. */
  readonly actor: string;
  readonly requestId: string;
  readonly at: Date;
}

/** A change, told by the state before and after it; neither may hold a secret. */
export interface Change {
  readonly workspaceId: string;
  readonly type: `${"key" | "identity" | "workspace"}.${string}`;
  readonly resourceId: string;
  readonly before: JsonObject | null;
  readonly after: JsonObject | null;
}

/** An event as it is stored. */
export interface EventRow extends Author, Change {
  readonly eventId: string;
}

/** Which events to list; what is undefined is not asked for. */
export interface EventFilter {
  readonly workspaceId: string | undefined;
  readonly type: string | undefined;
  readonly resourceId: string | undefined;
  readonly since: Date | undefined;
  readonly until: Date | undefined;
}

/** Tells of a change. To be called in the transaction that makes it: then neither is there without the other. */
export async function recordChange(sql: Statement, by: Author, change: Change): Promise<void> {
  const { workspaceId, type, resourceId, before, after } = change;
  await sql`
    insert into audit_events (event_id, workspace_id, type, actor, resource_id, request_id, at, before, after)
    values (${mintId("evt")}, ${workspaceId}, ${type}, ${by.actor}, ${resourceId}, ${by.requestId}, ${by.at},
      ${before && jsonText(sql, before)}, ${after && jsonText(sql, after)})`;
}

export type AuditStore = ReturnType<typeof createAuditStore>;

export function createAuditStore(sql: Sql) {
  return {
    /** Newest first: `after` is the event that the page before ended with. */
    async listEvents(filter: EventFilter, page: PageRequest): Promise<EventRow[]> {
      const { workspaceId, type, resourceId, since, until } = filter;
      const conditions = [
        page.after !== "" && sql`event_id < ${page.after}`,
        workspaceId !== undefined && sql`workspace_id = ${workspaceId}`,
        type !== undefined && sql`type = ${type}`,
        resourceId !== undefined && sql`resource_id = ${resourceId}`,
        since !== undefined && sql`at >= ${since}`,
        until !== undefined && sql`at < ${until}`,
      ];
      const wanted = conditions.reduce<Fragment>((all, one) => (one ? sql`${all} and ${one}` : all), sql`true`);
      return sql<EventRow[]>`
        select event_id, workspace_id, type, actor, resource_id, request_id, at, before, after
        from audit_events where ${wanted}
        order by event_id desc limit ${page.limit + 1}`;
    },
  };
}
