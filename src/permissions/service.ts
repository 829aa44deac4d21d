import type { PermissionsService } from "../../gen/latchkey/v1/permissions_service_pb.js";
import { actorOf, callingKey, type Handlers } from "../call/context.js";
import {
  permissionAlreadyExists,
  permissionInUse,
  permissionNotFound,
  roleAlreadyExists,
  roleNotFound,
} from "../errors.js";
import { mintId } from "../ids.js";
import { buildPage, parsePageRequest } from "../pagination.js";
import type { KeyCache } from "../revocation/key-cache.js";
import { toPermission, toRole } from "./convert.js";
import type { RoleStore } from "./role-store.js";
import type { PermissionsStore } from "./store.js";

/** The catalogue of permissions and the roles of the caller's workspace. */
export function createPermissionsService(catalogue: PermissionsStore, roles: RoleStore, keyCache: KeyCache) {
  return {
    async createPermission({ name, slug, description = null }, context) {
      const { workspaceId } = callingKey(context);
      const response = { permissionId: mintId("perm") };
      const permission = { ...response, workspaceId, name, slug, description };
      const timeline = keyCache.knownTimeline();
      const record = context.record?.(response);
      if (!(await catalogue.insertPermission(context.call, permission, actorOf(context), record))) {
        // After an unknown outcome, a retrying client concludes from this error that its first attempt succeeded.
        await keyCache.awaitDurability(context.call, timeline);
        throw permissionAlreadyExists();
      }
      return response;
    },

    async getPermission({ permission }, context) {
      const { workspaceId } = callingKey(context);
      const row = await catalogue.findPermission(context.call, workspaceId, permission);
      if (row === undefined) throw permissionNotFound();
      return { permission: toPermission(row) };
    },

    async listPermissions(request, context) {
      const { workspaceId } = callingKey(context);
      const page = parsePageRequest("permissions", request);
      const found = await catalogue.listPermissions(context.call, workspaceId, request.search, page);
      const idOf = (row: (typeof found.rows)[number]) => row.permissionId;
      const { rows, pagination } = buildPage("permissions", page, found.rows, idOf, found.scannedTo);
      return { permissions: rows.map(toPermission), pagination };
    },

    async deletePermission({ permission }, context) {
      const { workspaceId } = callingKey(context);
      const timeline = keyCache.knownTimeline();
      const result = await catalogue.deletePermission(context.call, workspaceId, permission, actorOf(context));
      if (result === "in use") throw permissionInUse();
      if (result === "not found") {
        // A retrying client may not know how its first attempt ended. No replica caches the catalogue.
        await keyCache.awaitDurability(context.call, timeline);
        throw permissionNotFound();
      }
      return {};
    },

    async createRole({ name, description = null, permissions }, context) {
      const { workspaceId } = callingKey(context);
      const response = { roleId: mintId("role") };
      const role = { ...response, workspaceId, name, description, permissions };
      const timeline = keyCache.knownTimeline();
      const record = context.record?.(response);
      if (!(await roles.insertRole(context.call, role, actorOf(context), record))) {
        // As for createPermission.
        await keyCache.awaitDurability(context.call, timeline);
        throw roleAlreadyExists();
      }
      return response;
    },

    async getRole({ role }, context) {
      const { workspaceId } = callingKey(context);
      const row = await roles.findRole(context.call, workspaceId, role);
      if (row === undefined) throw roleNotFound(role);
      return { role: toRole(row) };
    },

    async listRoles(request, context) {
      const { workspaceId } = callingKey(context);
      const page = parsePageRequest("roles", request);
      const found = await roles.listRoles(context.call, workspaceId, request.search, page);
      const { rows, pagination } = buildPage("roles", page, found.rows, (row) => row.roleId, found.scannedTo);
      return { roles: rows.map(toRole), pagination };
    },

    async setRolePermissions({ roleId, permissions }, context) {
      const { workspaceId } = callingKey(context);
      context.call.revokes = true;
      const by = actorOf(context);
      const changed = await roles.setRolePermissions(context.call, workspaceId, roleId, permissions, by);
      if (!changed) throw roleNotFound(roleId);
      await keyCache.awaitPropagation();
      const described = await catalogue.describePermissions(context.call, workspaceId, permissions);
      return { permissions: described.map(toPermission) };
    },

    async deleteRole({ role }, context) {
      const { workspaceId } = callingKey(context);
      context.call.revokes = true;
      const timeline = keyCache.knownTimeline();
      const deleted = await roles.deleteRole(context.call, workspaceId, role, actorOf(context));
      // Also if the role is already deleted: a retrying client may not know how its first attempt ended.
      await (deleted ? keyCache.awaitPropagation() : keyCache.awaitEarlierChanges(context.call, timeline));
      if (!deleted) throw roleNotFound(role);
      return {};
    },
  } satisfies Handlers<typeof PermissionsService>;
}
