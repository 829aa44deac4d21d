import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { DisabledReason, type WorkspaceSchema } from "../../gen/latchkey/v1/workspace_pb.js";
import type { WorkspaceRow } from "./store.js";

/** Converts the row of a workspace to its message. */
export function toWorkspace(row: WorkspaceRow): MessageInitShape<typeof WorkspaceSchema> {
  return {
    workspaceId: row.workspaceId,
    name: row.name,
    enabled: row.disabledAt === null,
    disabledReason: row.disabledReason === null ? undefined : readReason(row.disabledReason),
    disabledNote: row.disabledNote ?? undefined,
    disabledAt: row.disabledAt ? timestampFromDate(row.disabledAt) : undefined,
    createdAt: timestampFromDate(row.createdAt),
  };
}

/** Reasons are stored by name, so that people can read the table without the proto. */
export function writeReason(reason: DisabledReason): string {
  return DisabledReason[reason];
}

function readReason(name: string): DisabledReason {
  return DisabledReason[name as keyof typeof DisabledReason];
}
