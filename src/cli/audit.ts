import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { Command } from "commander";
import { ListAuditEventsResponseSchema } from "../../gen/latchkey/v1/workspaces_service_pb.js";
import type { ClientConfig } from "../config.js";
import { calls, listCommand, time } from "./command.js";
import { writeMore, writeTable } from "./output.js";

interface ListFlags {
  readonly limit?: number;
  readonly cursor?: string;
  readonly workspace?: string;
  readonly type?: string;
  readonly resource?: string;
  readonly since?: Timestamp;
  readonly until?: Timestamp;
}

/** `latchkey audit list`, for the operator. */
export function auditCommand(config: ClientConfig): Command {
  return new Command("audit")
    .description("see who changed what (the operator's, or a key with audit.read)")
    .exitOverride()
    .addCommand(
      listCommand("list the changes, newest first")
        .option("--workspace <workspaceId>", "only those in this workspace")
        .option("--type <type>", "only those of this type, such as key.create")
        .option("--resource <id>", "only those of this key, identity or workspace")
        .option("--since <time>", "only those at this time or later", time)
        .option("--until <time>", "only those before this time", time)
        .action(
          calls(config, {
            role: "operator",
            response: ListAuditEventsResponseSchema,
            call: ({ workspaces }, { workspace, resource, ...flags }: ListFlags) =>
              workspaces.listAuditEvents({
                workspaceId: workspace,
                resourceId: resource,
                type: flags.type,
                since: flags.since,
                until: flags.until,
                limit: flags.limit,
                cursor: flags.cursor,
              }),
            show: ({ events, pagination }) => {
              writeTable(events, {
                AT: ({ at }) => at,
                TYPE: ({ type }) => type,
                RESOURCE: ({ resourceId }) => resourceId,
                ACTOR: ({ actor }) => actor,
                WORKSPACE: ({ workspaceId }) => workspaceId,
                REQUEST: ({ requestId }) => requestId,
              });
              writeMore(pagination);
            },
          }),
        ),
    );
}
