import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { AuditEventSchema } from "../../gen/latchkey/v1/audit_event_pb.js";
import type { ListAuditEventsRequest } from "../../gen/latchkey/v1/workspaces_service_pb.js";
import type { EventFilter, EventRow } from "./store.js";

/** Converts the row of an event to its message. */
export function toAuditEvent({ at, before, after, ...row }: EventRow): MessageInitShape<typeof AuditEventSchema> {
  return { ...row, at: timestampFromDate(at), before: before ?? undefined, after: after ?? undefined };
}

/** The filter of a list request, restricted to the workspace that the caller may see. */
export function toFilter(request: ListAuditEventsRequest, workspaceId: string | undefined): EventFilter {
  return {
    workspaceId,
    type: request.type,
    resourceId: request.resourceId,
    since: request.since && timestampDate(request.since),
    until: request.until && timestampDate(request.until),
  };
}
