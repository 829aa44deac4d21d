import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { Command } from "commander";
import { ListAuditEventsResponseSchema } from "../../gen/latchkey/v1/workspaces_service_pb.js";
import type { ClientConfig } from "../config.js";
import { callAction, listCommand } from "./command.js";
import { writeNextPageHint, writeTable } from "./output.js";
import { time } from "./time-text.js";

interface ListFlags {
  readonly limit?: number;
  readonly cursor?: string;
  readonly workspace?: string;
  readonly type?: string;
  readonly resource?: string;
  readonly since?: Timestamp;
  readonly until?: Timestamp;
}

/** `latchkey audit list`. It uses the operator credential by default. */
export function auditCommand(config: ClientConfig): Command {
  return new Command("audit")
    .description("list audit events: who changed what (operator credential, or a key with the scope audit.read)")
    .exitOverride()
    .addCommand(
      listCommand("list audit events, newest first")
        .option("--workspace <workspaceId>", "only events of this workspace")
        .option("--type <type>", "only events of this type, such as key.create")
        .option(
          "--resource <id>",
          "only events of this resource: a key, identity, API, role, permission, override or workspace",
        )
        .option("--since <time>", "only events at or after this time", time)
        .option("--until <time>", "only events before this time", time)
        .action(
          callAction(config, {
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
              writeNextPageHint(pagination);
            },
          }),
        ),
    );
}
