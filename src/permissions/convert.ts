import type { MessageInitShape } from "@bufbuild/protobuf";
import type { PermissionSchema, RoleSchema } from "../../gen/latchkey/v1/permission_pb.js";
import type { RoleRow } from "./role-store.js";
import type { PermissionRow } from "./store.js";

/** Converts a permission to its message. One that the catalogue does not contain is described by its slug alone. */
export function toPermission(row: PermissionRow): MessageInitShape<typeof PermissionSchema> {
  const { slug, permissionId, name, description } = row;
  return { id: permissionId ?? slug, name: name ?? slug, slug, description: description ?? undefined };
}

/** Converts the row of a role to its message. */
export function toRole({ roleId, name, description, permissions }: RoleRow): MessageInitShape<typeof RoleSchema> {
  return { id: roleId, name, description: description ?? undefined, permissions: permissions.map(toPermission) };
}
