import { Command } from "commander";
import type { Permission, Role } from "../../gen/latchkey/v1/permission_pb.js";
import {
  CreatePermissionResponseSchema,
  CreateRoleResponseSchema,
  DeletePermissionResponseSchema,
  DeleteRoleResponseSchema,
  GetPermissionResponseSchema,
  GetRoleResponseSchema,
  ListPermissionsResponseSchema,
  ListRolesResponseSchema,
  SetRolePermissionsResponseSchema,
} from "../../gen/latchkey/v1/permissions_service_pb.js";
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
import { type Columns, writeNextPageHint, writeRecord, writeTable } from "./output.js";

/** The columns of permissions, also of those that a key or a role has. */
const permissionColumns: Columns<Permission> = {
  SLUG: ({ slug }) => slug,
  NAME: ({ name }) => name,
  DESCRIPTION: ({ description }) => description,
  ID: ({ id }) => id,
};

/** The columns of roles. */
const roleColumns: Columns<Role> = {
  NAME: ({ name }) => name,
  PERMISSIONS: ({ permissions }) => permissions.map(({ slug }) => slug),
  DESCRIPTION: ({ description }) => description,
  ID: ({ id }) => id,
};

interface ListFlags {
  readonly limit?: number;
  readonly cursor?: string;
  readonly search?: string;
}

const role = "key" as const;

/** `latchkey permission …`: the catalogue of permissions. It uses a key of the workspace. */
export function permissionCommand(config: ClientConfig): Command {
  return new Command("permission")
    .description("create, list and delete the permissions of the catalogue, which describes them for people")
    .exitOverride()
    .addCommand(
      createCommand("create", "add a permission to the catalogue")
        .argument("<slug>", "what keys and roles have, such as documents.read")
        .option("--name <name>", "a name for people (default: the slug)")
        .option("--description <text>", "what the permission allows")
        .action(
          callAction(config, {
            role,
            response: CreatePermissionResponseSchema,
            call: ({ permissions }, flags: CreateFlags & { name?: string; description?: string }, slug) => {
              const { name = slug, description } = flags;
              return permissions.createPermission({ slug, name, description }, createOptions(flags));
            },
            show: (created) => writeRecord(created, { ID: ({ permissionId }) => permissionId }),
          }),
        ),
    )
    .addCommand(
      listCommand("list the permissions, newest last")
        .option("--search <text>", "only permissions whose slug contains this text")
        .action(
          callAction(config, {
            role,
            response: ListPermissionsResponseSchema,
            call: ({ permissions }, { limit, cursor, search }: ListFlags) =>
              permissions.listPermissions({ limit, cursor, search }),
            show: ({ permissions, pagination }) => {
              writeTable(permissions, permissionColumns);
              writeNextPageHint(pagination);
            },
          }),
        ),
    )
    .addCommand(
      remoteCommand("get", "show one permission")
        .argument("<permission>", "its slug or its id")
        .action(
          callAction(config, {
            role,
            response: GetPermissionResponseSchema,
            call: ({ permissions }, _flags, permission) => permissions.getPermission({ permission }),
            show: ({ permission }) => permission && writeRecord(permission, permissionColumns),
          }),
        ),
    )
    .addCommand(
      remoteCommand("delete", "remove a permission from the catalogue; no key and no role may have it")
        .argument("<permission>", "its slug or its id")
        .action(
          callAction(config, {
            role,
            response: DeletePermissionResponseSchema,
            call: ({ permissions }, _flags, permission) => permissions.deletePermission({ permission }),
            show: () => process.stdout.write("deleted\n"),
          }),
        ),
    );
}

/** `latchkey role …`. It uses a key of the workspace. */
export function roleCommand(config: ClientConfig): Command {
  return new Command("role")
    .description("create, list, change and delete the roles of a workspace: named sets of permissions")
    .exitOverride()
    .addCommand(
      createCommand("create", "create a role")
        .argument("<name>")
        .option("--description <text>", "what the role is for")
        .option("--permission <slug>", "a permission of the role; can be given several times", collect)
        .action(
          callAction(config, {
            role,
            response: CreateRoleResponseSchema,
            call: (
              { permissions },
              { permission = [], description, ...flags }: CreateFlags & { permission?: string[]; description?: string },
              name,
            ) => permissions.createRole({ name, description, permissions: permission }, createOptions(flags)),
            show: (created) => writeRecord(created, { ID: ({ roleId }) => roleId }),
          }),
        ),
    )
    .addCommand(
      listCommand("list the roles, newest last")
        .option("--search <text>", "only roles whose name contains this text")
        .action(
          callAction(config, {
            role,
            response: ListRolesResponseSchema,
            call: ({ permissions }, { limit, cursor, search }: ListFlags) =>
              permissions.listRoles({ limit, cursor, search }),
            show: ({ roles, pagination }) => {
              writeTable(roles, roleColumns);
              writeNextPageHint(pagination);
            },
          }),
        ),
    )
    .addCommand(
      remoteCommand("get", "show one role")
        .argument("<role>", "its name or its id")
        .action(
          callAction(config, {
            role,
            response: GetRoleResponseSchema,
            call: ({ permissions }, _flags, name) => permissions.getRole({ role: name }),
            show: ({ role: found }) => found && writeRecord(found, roleColumns),
          }),
        ),
    )
    .addCommand(
      remoteCommand("set-permissions", "replace the permissions of a role; without any, it has none")
        .argument("<role>", "its name or its id")
        .option("--permission <slug>", "a permission of the role; can be given several times", collect)
        .action(
          callAction(config, {
            role,
            response: SetRolePermissionsResponseSchema,
            call: ({ permissions }, { permission = [] }: { permission?: string[] }, roleId) =>
              permissions.setRolePermissions({ roleId, permissions: permission }),
            show: ({ permissions }) => writeTable(permissions, permissionColumns),
          }),
        ),
    )
    .addCommand(
      remoteCommand("delete", "delete a role; its keys lose its permissions")
        .argument("<role>", "its name or its id")
        .action(
          callAction(config, {
            role,
            response: DeleteRoleResponseSchema,
            call: ({ permissions }, _flags, name) => permissions.deleteRole({ role: name }),
            show: () => process.stdout.write("deleted\n"),
          }),
        ),
    );
}
