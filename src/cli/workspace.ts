import { Command, Option } from "commander";
import { DisabledReason, type Workspace } from "../../gen/latchkey/v1/workspace_pb.js";
import {
  CreateRootKeyResponseSchema,
  CreateWorkspaceResponseSchema,
  DisableWorkspaceResponseSchema,
  EnableWorkspaceResponseSchema,
  GetWorkspaceResponseSchema,
  ListWorkspacesResponseSchema,
} from "../../gen/latchkey/v1/workspaces_service_pb.js";
import type { ClientConfig } from "../config.js";
import {
  type CreateFlags,
  calls,
  collect,
  createCommand,
  createOptions,
  listCommand,
  remoteCommand,
} from "./command.js";
import { secretColumns } from "./key.js";
import { type Columns, writeMore, writeRecord, writeTable } from "./output.js";

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

/** `latchkey workspace …`, for the operator. */
export function workspaceCommand(config: ClientConfig): Command {
  const role = "operator" as const;
  const showWorkspace = ({ workspace }: { workspace?: Workspace }) => workspace && writeRecord(workspace, columns);

  return new Command("workspace")
    .description("create, list, disable and enable workspaces, and make keys for them (the operator's)")
    .exitOverride()
    .addCommand(
      createCommand("create", "create a workspace and its first key, which is shown once")
        .argument("<name>", "what people call it")
        .action(
          calls(config, {
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
      createCommand("create-root-key", "create a key for a workspace whose keys are lost; it is shown once")
        .argument("<workspaceId>")
        .option("--name <name>", "what people call it")
        .option("--scope <name>", "what it may do, by default everything; can be given several times", collect)
        .action(
          calls(config, {
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
        calls(config, {
          role,
          response: ListWorkspacesResponseSchema,
          call: ({ workspaces }, { limit, cursor }: { limit?: number; cursor?: string }) =>
            workspaces.listWorkspaces({ limit, cursor }),
          show: ({ workspaces, pagination }) => {
            writeTable(workspaces, columns);
            writeMore(pagination);
          },
        }),
      ),
    )
    .addCommand(
      remoteCommand("get", "show one workspace")
        .argument("<workspaceId>")
        .action(
          calls(config, {
            role,
            response: GetWorkspaceResponseSchema,
            call: ({ workspaces }, _flags, workspaceId) => workspaces.getWorkspace({ workspaceId }),
            show: showWorkspace,
          }),
        ),
    )
    .addCommand(
      remoteCommand("disable", "refuse every key of a workspace, from now on")
        .argument("<workspaceId>")
        .addOption(new Option("--reason <reason>", "why").choices([...reasons.keys()]).makeOptionMandatory())
        .option("--note <text>", "more about it")
        .action(
          calls(config, {
            role,
            response: DisableWorkspaceResponseSchema,
            call: ({ workspaces }, { reason, note }: { reason: string; note?: string }, workspaceId) =>
              workspaces.disableWorkspace({ workspaceId, reason: reasons.get(reason), note }),
            show: showWorkspace,
          }),
        ),
    )
    .addCommand(
      remoteCommand("enable", "accept the keys of a workspace again")
        .argument("<workspaceId>")
        .action(
          calls(config, {
            role,
            response: EnableWorkspaceResponseSchema,
            call: ({ workspaces }, _flags, workspaceId) => workspaces.enableWorkspace({ workspaceId }),
            show: showWorkspace,
          }),
        ),
    );
}

/** The reasons as they are typed: unpaid-billing. */
const reasons = new Map(
  Object.values(DisabledReason)
    .filter((reason): reason is DisabledReason => typeof reason === "number" && reason !== DisabledReason.UNSPECIFIED)
    .map((reason) => [nameOf(reason), reason]),
);

function nameOf(reason: DisabledReason): string {
  return DisabledReason[reason].toLowerCase().replaceAll("_", "-");
}
