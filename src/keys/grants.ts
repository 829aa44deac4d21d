import type { KeysService } from "../../gen/latchkey/v1/keys_service_pb.js";
import { type CallContext, callingKey, type Handlers } from "../call/context.js";
import { invalidInput } from "../errors.js";
import { toPermission, toRole } from "../permissions/convert.js";
import type { RoleStore } from "../permissions/role-store.js";
import type { PermissionsStore } from "../permissions/store.js";
import type { KeyCache } from "../revocation/key-cache.js";
import type { KeyChanges, KeyRow, KeyVersion } from "./rows.js";

/** Changes a key to what a function makes of its present version, and returns the changed row. */
export type ChangeKey = (
  keyId: string,
  changesOf: (current: KeyVersion) => KeyChanges,
  context: CallContext,
) => Promise<KeyRow>;

type Grants = Pick<
  Handlers<typeof KeysService>,
  "addPermissions" | "removePermissions" | "setPermissions" | "addRoles" | "removeRoles" | "setRoles"
>;

/** How many permissions and roles a key can have. The proto limits those of a request to as many. */
const maxPermissions = 100;
const maxRoles = 20;

/** The permissions and roles of a key, added, removed or replaced. */
export function createGrants(
  change: ChangeKey,
  catalogue: PermissionsStore,
  roleStore: RoleStore,
  keyCache: KeyCache,
): Grants {
  /** Changes the permissions of a key, and describes those that it has then. */
  async function changePermissions(
    keyId: string,
    changed: (current: readonly string[]) => string[],
    context: CallContext,
  ) {
    const { workspaceId } = callingKey(context);
    const row = await change(keyId, ({ permissions }) => ({ permissions: changed(permissions) }), context);
    await keyCache.awaitPropagation();
    const described = await catalogue.describePermissions(context.call, workspaceId, row.permissions);
    return { permissions: described.map(toPermission) };
  }

  /** Changes the roles of a key, and describes those that it has then. */
  async function changeRoles(
    keyId: string,
    changed: (current: KeyVersion["roles"]) => Pick<KeyChanges, "roles" | "keptRoleIds">,
    context: CallContext,
  ) {
    const { workspaceId } = callingKey(context);
    const row = await change(keyId, ({ roles }) => changed(roles), context);
    await keyCache.awaitPropagation();
    const roles = await roleStore.findRoles(context.call, workspaceId, row.roles);
    return { roles: roles.map(toRole) };
  }

  return {
    addPermissions({ keyId, permissions }, context) {
      return changePermissions(keyId, (current) => boundedUnion(current, permissions), context);
    },

    removePermissions({ keyId, permissions }, context) {
      context.call.revokes = true;
      return changePermissions(keyId, (current) => current.filter((slug) => !permissions.includes(slug)), context);
    },

    setPermissions({ keyId, permissions }, context) {
      context.call.revokes = true;
      return changePermissions(keyId, () => permissions, context);
    },

    addRoles({ keyId, roles }, context) {
      const changed = (current: KeyVersion["roles"]) => {
        const added = roles.filter((role) => !current.some((one) => isCalled(one, role)));
        if (current.length + added.length > maxRoles) throw tooMany("roles", maxRoles);
        return { roles: added, keptRoleIds: current.map(({ roleId }) => roleId) };
      };
      return changeRoles(keyId, changed, context);
    },

    removeRoles({ keyId, roles }, context) {
      context.call.revokes = true;
      const changed = (current: KeyVersion["roles"]) => {
        const kept = current.filter((one) => !roles.some((role) => isCalled(one, role)));
        return { roles: [], keptRoleIds: kept.map(({ roleId }) => roleId) };
      };
      return changeRoles(keyId, changed, context);
    },

    setRoles({ keyId, roles }, context) {
      context.call.revokes = true;
      return changeRoles(keyId, () => ({ roles }), context);
    },
  };
}

function boundedUnion(current: readonly string[], added: readonly string[]): string[] {
  const all = [...new Set([...current, ...added])];
  if (all.length > maxPermissions) throw tooMany("permissions", maxPermissions);
  return all;
}

/** A role is named by its id or its name. No name has the form of an id. */
function isCalled({ roleId, name }: KeyVersion["roles"][number], role: string): boolean {
  return role === roleId || role === name;
}

function tooMany(location: string, max: number) {
  return invalidInput([{ location, message: `must not give the key more than ${max} in all; remove others first` }]);
}
