import { Command } from "commander";
import type { Api } from "../../gen/latchkey/v1/api_pb.js";
import {
  CreateApiResponseSchema,
  DeleteApiResponseSchema,
  GetApiResponseSchema,
  ListApisResponseSchema,
} from "../../gen/latchkey/v1/apis_service_pb.js";
import type { ClientConfig } from "../config.js";
import { type CreateFlags, callAction, createCommand, createOptions, listCommand, remoteCommand } from "./command.js";
import { type Columns, writeNextPageHint, writeRecord, writeTable } from "./output.js";

const columns: Columns<Api> = {
  ID: ({ id }) => id,
  NAME: ({ name }) => name,
  CREATED: ({ createdAt }) => createdAt,
};

/** `latchkey api …`. It uses a key of the workspace. */
export function apiCommand(config: ClientConfig): Command {
  const role = "key" as const;

  return new Command("api")
    .description("create, list and delete the APIs of a workspace: groups of keys")
    .exitOverride()
    .addCommand(
      createCommand("create", "create an API")
        .argument("<name>", "a name for people")
        .action(
          callAction(config, {
            role,
            response: CreateApiResponseSchema,
            call: ({ apis }, flags: CreateFlags, name) => apis.createApi({ name }, createOptions(flags)),
            show: (created) => writeRecord(created, { ID: ({ apiId }) => apiId }),
          }),
        ),
    )
    .addCommand(
      listCommand("list the APIs, newest last").action(
        callAction(config, {
          role,
          response: ListApisResponseSchema,
          call: ({ apis }, { limit, cursor }: { limit?: number; cursor?: string }) => apis.listApis({ limit, cursor }),
          show: ({ apis, pagination }) => {
            writeTable(apis, columns);
            writeNextPageHint(pagination);
          },
        }),
      ),
    )
    .addCommand(
      remoteCommand("get", "show one API")
        .argument("<apiId>")
        .action(
          callAction(config, {
            role,
            response: GetApiResponseSchema,
            call: ({ apis }, _flags, apiId) => apis.getApi({ apiId }),
            show: ({ api }) => api && writeRecord(api, columns),
          }),
        ),
    )
    .addCommand(
      remoteCommand("delete", "delete an API and all its keys permanently")
        .argument("<apiId>")
        .action(
          callAction(config, {
            role,
            response: DeleteApiResponseSchema,
            call: ({ apis }, _flags, apiId) => apis.deleteApi({ apiId }),
            show: () => process.stdout.write("deleted\n"),
          }),
        ),
    );
}
