import { Command, Option } from "commander";
import { DisabledReason, type Workspace } from "../../gen/latchkey/v1/workspace_pb.js";
import {
  CreateRootKeyResponseSchema,
  CreateWorkspaceResponseSchema,
  DeleteWorkspaceResponseSchema,
  DisableWorkspaceResponseSchema,
  EnableWorkspaceResponseSchema,
  GetWorkspaceResponseSchema,
  ListWorkspacesResponseSchema,
  UpdateWorkspaceResponseSchema,
} from "../../gen/latchkey/v1/workspaces_service_pb.js";
import type { ClientConfig } from "../config.js";
import {
  type CreateFlags,
  callAction,
  collect,
  createCommand,
  createOptions,
  listCommand,
  remoteCommand,
} from "./command.js";
import { secretColumns } from "./key.js";
import { type Columns, writeNextPageHint, writeRecord, writeTable } from "./output.js";

const columns: Columns<Workspace> = {
  ID: ({ workspaceId }) => workspaceId,
  NAME: ({ name }) => name,
  STATE: ({ enabled }) => (enabled ? "enabled" : "disabled"),
  REASON: ({ disabledReason }) => disabledReason && nameOf(disabledReason),
  NOTE: ({ disabledNote }) => disabledNote,
  SINCE: ({ disabledAt }) => disabledAt,
  CREATED: ({ createdAt }) => createdAt,
};

interface RootKeyFlags extends CreateFlags {
  readonly name?: string;
  readonly scope?: string[];
}

/** `latchkey workspace …`. It uses the operator credential. */
export function workspaceCommand(config: ClientConfig): Command {
  const role = "operator" as const;
  const showWorkspace = ({ workspace }: { workspace?: Workspace }) => workspace && writeRecord(workspace, columns);

  return new Command("workspace")
    .description(
      "create, list, rename, disable, enable and delete workspaces, and create root keys (operator credential)",
    )
    .exitOverride()
    .addCommand(
      createCommand("create", "create a workspace and its first key, whose secret is shown only once")
        .argument("<name>", "a name for people")
        .action(
          callAction(config, {
            role,
            response: CreateWorkspaceResponseSchema,
            call: ({ workspaces }, flags: CreateFlags, name) =>
              workspaces.createWorkspace({ name }, createOptions(flags)),
            show: (created) =>
              writeRecord(created, {
                WORKSPACE: ({ workspaceId }) => workspaceId,
                "KEY ID": ({ keyId }) => keyId,
                KEY: ({ key }) => key,
              }),
          }),
        ),
    )
    .addCommand(
      createCommand(
        "create-root-key",
        "create a key for a workspace whose keys are lost; its secret is shown only once",
      )
        .argument("<workspaceId>")
        .option("--name <name>", "a name for people")
        .option("--scope <name>", "a scope of the key, by default all scopes; can be given several times", collect)
        .action(
          callAction(config, {
            role,
            response: CreateRootKeyResponseSchema,
            call: ({ workspaces }, { name, scope = [], ...flags }: RootKeyFlags, workspaceId) =>
              workspaces.createRootKey({ workspaceId, name, scopes: scope }, createOptions(flags)),
            show: (created) => writeRecord(created, secretColumns),
          }),
        ),
    )
    .addCommand(
      listCommand("list the workspaces, newest last").action(
        callAction(config, {
          role,
          response: ListWorkspacesResponseSchema,
          call: ({ workspaces }, { limit, cursor }: { limit?: number; cursor?: string }) =>
            workspaces.listWorkspaces({ limit, cursor }),
          show: ({ workspaces, pagination }) => {
            writeTable(workspaces, columns);
            writeNextPageHint(pagination);
          },
        }),
      ),
    )
    .addCommand(
      remoteCommand("get", "show one workspace")
        .argument("<workspaceId>")
        .action(
          callAction(config, {
            role,
            response: GetWorkspaceResponseSchema,
            call: ({ workspaces }, _flags, workspaceId) => workspaces.getWorkspace({ workspaceId }),
            show: showWorkspace,
          }),
        ),
    )
    .addCommand(
      remoteCommand("disable", "disable a workspace: all its keys are refused")
        .argument("<workspaceId>")
        .addOption(new Option("--reason <reason>", "why").choices([...reasons.keys()]).makeOptionMandatory())
        .option("--note <text>", "details of the reason")
        .action(
          callAction(config, {
            role,
            response: DisableWorkspaceResponseSchema,
            call: ({ workspaces }, { reason, note }: { reason: string; note?: string }, workspaceId) =>
              workspaces.disableWorkspace({ workspaceId, reason: reasons.get(reason), note }),
            show: showWorkspace,
          }),
        ),
    )
    .addCommand(
      remoteCommand("enable", "enable a workspace: its keys are accepted again")
        .argument("<workspaceId>")
        .action(
          callAction(config, {
            role,
            response: EnableWorkspaceResponseSchema,
            call: ({ workspaces }, _flags, workspaceId) => workspaces.enableWorkspace({ workspaceId }),
            show: showWorkspace,
          }),
        ),
    )
    .addCommand(
      remoteCommand("update", "change the name of a workspace")
        .argument("<workspaceId>")
        .requiredOption("--name <name>", "the new name")
        .action(
          callAction(config, {
            role,
            response: UpdateWorkspaceResponseSchema,
            call: ({ workspaces }, { name }: { name: string }, workspaceId) =>
              workspaces.updateWorkspace({ workspaceId, name }),
            show: showWorkspace,
          }),
        ),
    )
    .addCommand(
      remoteCommand("delete", "delete a disabled workspace with all its keys; this cannot be undone")
        .argument("<workspaceId>")
        .action(
          callAction(config, {
            role,
            response: DeleteWorkspaceResponseSchema,
            call: ({ workspaces }, _flags, workspaceId) => workspaces.deleteWorkspace({ workspaceId }),
            show: () => process.stdout.write("deleted\n"),
          }),
        ),
    );
}

/** The reasons as the user types them, such as unpaid-billing. */
const reasons = new Map(
  Object.values(DisabledReason)
    .filter((reason): reason is DisabledReason => typeof reason === "number" && reason !== DisabledReason.UNSPECIFIED)
    .map((reason) => [nameOf(reason), reason]),
);

function nameOf(reason: DisabledReason): string {
  return DisabledReason[reason].toLowerCase().replaceAll("_", "-");
}
