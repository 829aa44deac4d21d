import { createHash } from "node:crypto";
import type { Fields, Outcome, UncheckedClient, UncheckedClientKind } from "../support/clients/unchecked.js";
import type { Rules } from "../support/integrity.js";
import type { OperationName } from "../support/operations.js";
import type { Random } from "../verification/faults/random.js";
import type { Change, Ledger } from "./ledger.js";
import type { Create } from "./repetitions.js";

/** The expected state of keys, by secret: valid or not, or undefined after a change of unknown outcome. */
export type KeyStates = Map<string, { readonly workspaceKey: string; valid: boolean | undefined }>;

/** Changes the resources of a workspace, one after the other. No other writer changes them. */
export interface Writer {
  readonly kind: UncheckedClientKind;
  /** Writes until the service is gone. */
  write(client: UncheckedClient): Promise<void>;
}

/** The state that all writers share. */
export interface Knowledge {
  readonly ledger: Ledger;
  /** The keys that are verified in their workspace. */
  readonly keys: KeyStates;
  /** The keys of workspaces that are disabled and enabled; they are checked as callers. */
  readonly callers: KeyStates;
  /** The creates that were sent with an Idempotency-Key. */
  readonly creates: Create[];
  /** Unexpected outcomes, as text. */
  readonly unexpected: string[];
  /** The number of acknowledgements per operation. */
  readonly counts: Map<OperationName, number>;
}

/** A mutating call: its caller, and the consequences of its acknowledgement. */
interface Mutation {
  readonly operation: OperationName;
  readonly credential: string;
  readonly request: Fields;
  /** The existing resource that it changes. */
  readonly resourceId?: string;
  /** The secret of the key whose state it changes. */
  readonly secret?: string;
  /** Used for a retry if the outcome is unknown. */
  readonly idempotencyKey?: string;
  acknowledged(data: Fields): readonly Change[];
  /** The outcome is unknown: its resource is not changed any more. */
  abandoned(): void;
}

/** Invariants of the writers' data: identities that were created together with a key have an externalId `owner-…`. */
export const ownerRules: Rules = {
  "an identity that was made for a key has that key": (sql) => sql`
    select event_id from audit_events as made
    where type = 'identity.create' and after ->> 'externalId' like 'owner-%' and not exists (
      select from audit_events
      where type in ('key.create', 'key.update') and request_id = made.request_id
        and after ->> 'identityId' = made.resource_id)`,
};

/** A workspace that a writer has created. */
interface WrittenWorkspace {
  readonly key: string;
  readonly keyId: string;
  enabled: boolean;
  /** Whether it may have other keys than its first one. */
  hasRootKeys: boolean;
}

/** The share of creates with an Idempotency-Key. */
const idempotentShare = 0.75;

/** Creates a writer for the workspace of this key. */
export function createWriter(
  kind: UncheckedClientKind,
  name: string,
  workspaceKey: string,
  operatorKey: string,
  random: Random,
  known: Knowledge,
): Writer {
  let turn = 0;
  const keys = new Map<string, string>();
  const identities = new Set<string>();
  const workspaces = new Map<string, WrittenWorkspace>();
  const apis = new Set<string>();
  /** The API of each key that has one. */
  const apiOf = new Map<string, string>();
  const roles = new Set<string>();
  const permissions = new Map<string, string>();
  const overrides = new Map<string, string>();
  const withCredits = new Set<string>();
  /** A permission and a role that a key has and can lose. */
  const permissionOf = new Map<string, string>();
  const roleOf = new Map<string, string>();
  const unique = (what: string) => `${what}-${name}-${++turn}`;
  const maybeIdempotent = () => (random.chance(idempotentShare) ? { idempotencyKey: unique("attempt") } : {});

  const creation = (operation: OperationName, request: Fields, acknowledged: Mutation["acknowledged"]): Mutation => ({
    operation,
    credential: workspaceKey,
    request,
    ...maybeIdempotent(),
    acknowledged,
    abandoned: () => {},
  });

  /** A change of an existing key. */
  const mutateKey = (
    operation: OperationName,
    extra: Fields,
    acknowledged: (key: { keyId: string; secret: string }, data: Fields) => Change[],
  ): Mutation => {
    const [keyId, secret] = random.pick([...keys]);
    return {
      operation,
      credential: workspaceKey,
      request: { keyId, ...extra },
      resourceId: keyId,
      secret,
      acknowledged: (data) => acknowledged({ keyId, secret }, data),
      abandoned: () => keys.delete(keyId),
    };
  };

  const mutateIdentity = (
    operation: OperationName,
    extra: Fields,
    acknowledged: (identityId: string) => Change[],
  ): Mutation => {
    const identityId = random.pick([...identities]);
    return {
      operation,
      credential: workspaceKey,
      request: { identityId, ...extra },
      resourceId: identityId,
      acknowledged: () => acknowledged(identityId),
      abandoned: () => identities.delete(identityId),
    };
  };

  /** A change of a resource that no key depends on. */
  const mutate = (
    operation: OperationName,
    resourceId: string,
    request: Fields,
    change: Omit<Change, "resourceId">,
    forget: () => void,
  ): Mutation => ({
    operation,
    credential: workspaceKey,
    request,
    resourceId,
    acknowledged() {
      if (change.type.endsWith(".delete")) forget();
      return [{ ...change, resourceId }];
    },
    abandoned: forget,
  });

  function recordKey(data: Fields, after: Fields, apiId?: string): Change[] {
    const { keyId, key } = data as { keyId: string; key: string };
    keys.set(keyId, key);
    known.keys.set(key, { workspaceKey, valid: true });
    if (apiId !== undefined) {
      apiOf.set(keyId, apiId);
      // The API may have been deleted before a retry returned the first response.
      if (!apis.has(apiId)) endKeysOf(apiId, undefined);
    }
    return [{ type: "key.create", resourceId: keyId, after }];
  }

  /** The credits of a rerolled key pass to its successor. */
  function inheritCredits(keyId: string, data: Fields): Change[] {
    const successor = String(data["keyId"]);
    if (!withCredits.has(keyId)) return [];
    withCredits.add(successor);
    return [{ type: "key.updateCredits", resourceId: successor }];
  }

  /** So do its permissions and roles. To give it one of them again would change nothing. */
  function inheritGrants(keyId: string, data: Fields): void {
    for (const grants of [permissionOf, roleOf]) {
      const granted = grants.get(keyId);
      if (granted !== undefined) grants.set(String(data["keyId"]), granted);
    }
  }

  /** From now on this key must be refused. It is not changed any more. */
  function revoke({ keyId, secret }: { keyId: string; secret: string }): void {
    const state = known.keys.get(secret);
    if (state) state.valid = false;
    keys.delete(keyId);
  }

  const createKey = () => {
    const apiId = apis.size > 0 && random.chance(0.3) ? random.pick([...apis]) : undefined;
    const owner = random.chance(0.5) && { externalId: unique("owner") };
    const request = { name: unique("key"), ...owner, ...(apiId && { apiId }) };
    return creation("createKey", request, (data) => recordKey(data, { name: request.name }, apiId));
  };
  /** The keys of a deleted API are refused. The service deletes their rows later, each with an event. */
  function endKeysOf(deletedApi: string, valid: false | undefined): void {
    for (const [keyId, apiId] of apiOf) {
      if (apiId !== deletedApi) continue;
      known.ledger.markUncertain(keyId);
      const state = known.keys.get(keys.get(keyId) ?? "");
      if (state) state.valid = valid;
      keys.delete(keyId);
    }
  }
  const createApi = () => {
    const name = unique("api");
    return creation("createApi", { name }, ({ apiId }) => {
      apis.add(String(apiId));
      return [{ type: "api.create", resourceId: String(apiId), after: { name } }];
    });
  };
  const deleteApi = (): Mutation => {
    const apiId = random.pick([...apis]);
    const end = (valid: false | undefined) => {
      apis.delete(apiId);
      endKeysOf(apiId, valid);
    };
    return {
      operation: "deleteApi",
      credential: workspaceKey,
      request: { apiId },
      resourceId: apiId,
      acknowledged() {
        end(false);
        return [{ type: "api.delete", resourceId: apiId }];
      },
      abandoned: () => end(undefined),
    };
  };
  const createRole = () => {
    const name = unique("role");
    return creation("createRole", { name, permissions: ["a"] }, ({ roleId }) => {
      roles.add(String(roleId));
      return [{ type: "role.create", resourceId: String(roleId), after: { name, permissions: ["a"] } }];
    });
  };
  const setRolePermissions = () => {
    const roleId = random.pick([...roles]);
    const after = { permissions: [unique("permission")] };
    const forget = () => roles.delete(roleId);
    return mutate("setRolePermissions", roleId, { roleId, ...after }, { type: "role.update", after }, forget);
  };
  const deleteRole = () => {
    const role = random.pick([...roles]);
    return mutate("deleteRole", role, { role }, { type: "role.delete" }, () => roles.delete(role));
  };
  const createPermission = () => {
    const slug = unique("permission");
    return creation("createPermission", { slug, name: slug }, ({ permissionId }) => {
      permissions.set(String(permissionId), slug);
      return [{ type: "permission.create", resourceId: String(permissionId), after: { slug } }];
    });
  };
  const deletePermission = () => {
    const [id, permission] = random.pick([...permissions]);
    return mutate("deletePermission", id, { permission }, { type: "permission.delete" }, () => permissions.delete(id));
  };
  const setOverride = (): Mutation => {
    const override = { namespace: "email", identifier: unique("user") };
    return {
      ...creation("setOverride", { ...override, limit: turn, duration: 60_000 }, ({ overrideId }) => {
        overrides.set(String(overrideId), override.identifier);
        return [{ type: "override.create", resourceId: String(overrideId), after: override }];
      }),
      idempotencyKey: undefined,
    };
  };
  const changeOverride = () => {
    const [id, identifier] = random.pick([...overrides]);
    const after = { namespace: "email", identifier, limit: ++turn, duration: 60_000 };
    return mutate("setOverride", id, after, { type: "override.update", after }, () => overrides.delete(id));
  };
  const deleteOverride = () => {
    const [id, identifier] = random.pick([...overrides]);
    const request = { namespace: "email", identifier };
    return mutate("deleteOverride", id, request, { type: "override.delete" }, () => overrides.delete(id));
  };
  const migrateKeys = () => {
    const [key, name] = [unique("imported-secret"), unique("imported")];
    const hash = createHash("sha256").update(key).digest("base64");
    return creation("migrateKeys", { migrationId: "m", keys: [{ hash, name }] }, ({ migrated }) => {
      const [{ keyId } = { keyId: "" }] = migrated as { keyId: string }[];
      return recordKey({ keyId, key }, { name });
    });
  };
  const createIdentity = () => {
    const externalId = unique("user");
    return creation("createIdentity", { externalId }, (data) => {
      const identityId = String(data["identityId"]);
      identities.add(identityId);
      return [{ type: "identity.create", resourceId: identityId, after: { externalId } }];
    });
  };
  const createWorkspace = (): Mutation => {
    const name = unique("workspace");
    return {
      ...creation("createWorkspace", { name }, (data) => {
        const { workspaceId, keyId, key } = data as Record<"workspaceId" | "keyId" | "key", string>;
        workspaces.set(workspaceId, { key, keyId, enabled: true, hasRootKeys: false });
        known.callers.set(key, { workspaceKey: key, valid: true });
        return [
          { type: "workspace.create", resourceId: workspaceId, after: { name } },
          { type: "key.create", resourceId: keyId, after: { name: "first key" } },
        ];
      }),
      credential: operatorKey,
    };
  };
  const createRootKey = (): Mutation => {
    // Always in the oldest workspace, so that the others can be deleted.
    const [workspaceId, workspace] = [...workspaces][0] as [string, WrittenWorkspace];
    const name = unique("root key");
    workspace.hasRootKeys = true;
    return {
      ...creation("createRootKey", { workspaceId, name }, ({ keyId }) => {
        return [{ type: "key.create", resourceId: String(keyId), after: { name } }];
      }),
      credential: operatorKey,
    };
  };
  const renameWorkspace = ([workspaceId]: [string, WrittenWorkspace]): Mutation => {
    const name = unique("renamed");
    return {
      operation: "updateWorkspace",
      credential: operatorKey,
      request: { workspaceId, name },
      resourceId: workspaceId,
      acknowledged: () => [{ type: "workspace.update", resourceId: workspaceId, after: { name } }],
      abandoned: () => workspaces.delete(workspaceId),
    };
  };
  /** Of a disabled workspace without root keys: a root key could not be created again by a retry. */
  const deleteWorkspace = ([workspaceId, { keyId }]: [string, WrittenWorkspace]): Mutation => ({
    operation: "deleteWorkspace",
    credential: operatorKey,
    request: { workspaceId },
    resourceId: workspaceId,
    acknowledged() {
      workspaces.delete(workspaceId);
      known.ledger.forgetTexts(workspaceId, keyId);
      return [{ type: "workspace.delete", resourceId: workspaceId }];
    },
    abandoned() {
      workspaces.delete(workspaceId);
      known.ledger.forgetTexts(workspaceId, keyId);
    },
  });
  const toggleWorkspace = ([workspaceId, workspace]: [string, WrittenWorkspace]): Mutation => {
    const { key, enabled } = workspace;
    const note = unique("note");
    return {
      operation: enabled ? "disableWorkspace" : "enableWorkspace",
      credential: operatorKey,
      request: { workspaceId, ...(enabled && { reason: "UNPAID_BILLING", note }) },
      resourceId: workspaceId,
      secret: key,
      acknowledged() {
        workspace.enabled = !enabled;
        (known.callers.get(key) as { valid: boolean }).valid = !enabled;
        const after = enabled ? { enabled: false, disabledNote: note } : { enabled: true };
        return [{ type: enabled ? "workspace.disable" : "workspace.enable", resourceId: workspaceId, after }];
      },
      abandoned: () => workspaces.delete(workspaceId),
    };
  };

  const grant = (operation: "addPermissions" | "setPermissions", permission: string): Mutation =>
    mutateKey(operation, { permissions: [permission] }, ({ keyId }) => {
      permissionOf.set(keyId, permission);
      return [{ type: "key.update", resourceId: keyId }];
    });
  /** A change of this key that does not affect whether it is valid. */
  const updateOf = (operation: OperationName, keyId: string, request: Fields, done: () => void): Mutation => ({
    operation,
    credential: workspaceKey,
    request: { keyId, ...request },
    resourceId: keyId,
    secret: keys.get(keyId) ?? "",
    acknowledged() {
      done();
      return [{ type: "key.update", resourceId: keyId }];
    },
    abandoned: () => keys.delete(keyId),
  });
  const removePermissions = ([keyId, permission]: [string, string]) =>
    updateOf("removePermissions", keyId, { permissions: [permission] }, () => permissionOf.delete(keyId));
  const addRole = (keyId: string, roleId: string) =>
    updateOf("addRoles", keyId, { roles: [roleId] }, () => roleOf.set(keyId, roleId));
  const removeRoles = ([keyId, roleId]: [string, string]) =>
    updateOf("removeRoles", keyId, { roles: [roleId] }, () => roleOf.delete(keyId));
  const clearRoles = ([keyId]: [string, string]) =>
    updateOf("setRoles", keyId, { roles: [] }, () => roleOf.delete(keyId));
  const updateCredits = () => {
    const remaining = 1_000_000 + ++turn;
    return mutateKey("updateCredits", { operation: "set", value: remaining }, ({ keyId }) => {
      withCredits.add(keyId);
      return [{ type: "key.updateCredits", resourceId: keyId, after: { remaining } }];
    });
  };
  const renameKey = () => {
    const name = unique("renamed");
    const owner = random.chance(0.5) && { externalId: unique("owner") };
    return mutateKey("updateKey", { name, ...owner }, ({ keyId }) => [
      { type: "key.update", resourceId: keyId, after: { name } },
    ]);
  };
  const disableKey = () =>
    mutateKey("updateKey", { enabled: false }, (key) => {
      revoke(key);
      return [{ type: "key.update", resourceId: key.keyId, after: { enabled: false } }];
    });
  const deleteKey = () =>
    mutateKey("deleteKey", {}, (key) => {
      revoke(key);
      return [{ type: "key.delete", resourceId: key.keyId }];
    });
  const rerollKey = (): Mutation => ({
    ...mutateKey("rerollKey", { expiration: 0 }, (key, data) => {
      revoke(key);
      const created = recordKey(data, { enabled: true }, apiOf.get(key.keyId));
      inheritGrants(key.keyId, data);
      return [{ type: "key.reroll", resourceId: key.keyId }, ...created, ...inheritCredits(key.keyId, data)];
    }),
    ...maybeIdempotent(),
  });
  const updateIdentity = () => {
    const meta = { turn: unique("meta") };
    return mutateIdentity("updateIdentity", { meta }, (identityId) => [
      { type: "identity.update", resourceId: identityId, after: { meta } },
    ]);
  };
  const deleteIdentity = () =>
    mutateIdentity("deleteIdentity", {}, (identityId) => {
      identities.delete(identityId);
      return [{ type: "identity.delete", resourceId: identityId }];
    });

  /** A mutation that can be made, by its operation. */
  type Possible = readonly [operation: OperationName, make: () => Mutation];

  /** Those that can be made of an item of this list, if there is one. */
  const eachOf = <Item>(items: Iterable<Item>, possible: (pick: () => Item) => readonly Possible[]) => {
    const list = [...items];
    return list.length > 0 ? possible(() => random.pick(list)) : [];
  };

  /** Every mutation that can be made now. A change of a resource needs one that this writer has created. */
  function possibleMutations(): readonly Possible[] {
    const ofWorkspaces = [...workspaces];
    const hasRole = ([keyId, roleId]: [string, string]) => keys.has(keyId) && roles.has(roleId);
    return [
      ["createKey", createKey],
      ["createKey", createKey],
      ["createIdentity", createIdentity],
      ["createWorkspace", createWorkspace],
      ["migrateKeys", migrateKeys],
      ["createApi", createApi],
      ["createRole", createRole],
      ["createPermission", createPermission],
      ["setOverride", setOverride],
      ...eachOf(apis, () => [["deleteApi", deleteApi]]),
      ...eachOf(roles, () => [["setRolePermissions", setRolePermissions]]),
      // Some roles stay, because keys can get and lose only these.
      ...eachOf([...roles].slice(2), () => [["deleteRole", deleteRole]]),
      ...eachOf(permissions, () => [["deletePermission", deletePermission]]),
      ...eachOf(overrides, () => [
        ["setOverride", changeOverride],
        ["deleteOverride", deleteOverride],
      ]),
      ...eachOf(keys, () => [
        ["addPermissions", () => grant("addPermissions", unique("granted"))],
        ["setPermissions", () => grant("setPermissions", unique("granted"))],
        ["updateCredits", updateCredits],
        ["updateKey", renameKey],
        ["updateKey", disableKey],
        ["deleteKey", deleteKey],
        ["rerollKey", rerollKey],
      ]),
      ...eachOf(
        [...permissionOf].filter(([keyId]) => keys.has(keyId)),
        (pick) => [["removePermissions", () => removePermissions(pick())]],
      ),
      ...eachOf(
        [...keys.keys()].filter((keyId) => roles.size > 0 && !roles.has(roleOf.get(keyId) ?? "")),
        (pick) => [["addRoles", () => addRole(pick(), random.pick([...roles]))]],
      ),
      ...eachOf([...roleOf].filter(hasRole), (pick) => [
        ["removeRoles", () => removeRoles(pick())],
        ["setRoles", () => clearRoles(pick())],
      ]),
      ...eachOf(identities, () => [
        ["updateIdentity", updateIdentity],
        ["deleteIdentity", deleteIdentity],
      ]),
      ...eachOf(ofWorkspaces, (pick) => [
        ["createRootKey", createRootKey],
        ["updateWorkspace", () => renameWorkspace(pick())],
      ]),
      ...eachOf(
        ofWorkspaces.filter(([, { enabled }]) => enabled),
        (pick) => [["disableWorkspace", () => toggleWorkspace(pick())]],
      ),
      ...eachOf(
        ofWorkspaces.filter(([, { enabled }]) => !enabled),
        (pick) => [["enableWorkspace", () => toggleWorkspace(pick())]],
      ),
      ...eachOf(
        ofWorkspaces.filter(([, { enabled, hasRootKeys }]) => !enabled && !hasRootKeys),
        (pick) => [["deleteWorkspace", () => deleteWorkspace(pick())]],
      ),
    ];
  }

  /**
   * An operation that no writer has completed yet, or else the rarest of a few. By chance alone, one that is possible only after
   * others might not occur in a whole run.
   */
  function chooseMutation(): Mutation {
    const possible = possibleMutations();
    const countOf = ([operation]: Possible) => known.counts.get(operation) ?? 0;
    const missing = possible.filter((each) => countOf(each) === 0);
    const candidates = missing.length > 0 ? missing : Array.from({ length: 4 }, () => random.pick(possible));
    const fewest = Math.min(...candidates.map(countOf));
    const [, make] = random.pick(candidates.filter((each) => countOf(each) === fewest));
    return make();
  }

  function acknowledge({ operation, acknowledged }: Mutation, data: Fields): void {
    known.counts.set(operation, (known.counts.get(operation) ?? 0) + 1);
    known.ledger.record(...acknowledged(data));
  }

  /** The service returned an error or no response. In both cases, the change may have taken effect. */
  function abandon({ resourceId, secret = "", idempotencyKey, abandoned }: Mutation): void {
    // The outcome of a call with an Idempotency-Key becomes known when it is retried.
    if (resourceId !== undefined && idempotencyKey === undefined) known.ledger.markUncertain(resourceId);
    const state = known.keys.get(secret) ?? known.callers.get(secret);
    if (state) state.valid = undefined;
    abandoned();
  }

  /** Records a create that can be retried, with its response if there was one. */
  function recordCreate(mutation: Mutation, response: Fields | undefined): void {
    const { operation, credential, request, idempotencyKey } = mutation;
    if (idempotencyKey === undefined) return;
    const onResponse = (data: Fields) => acknowledge(mutation, data);
    known.creates.push({ kind, operation, credential, request, idempotencyKey, response, onResponse });
  }

  function settle(mutation: Mutation, outcome: Outcome): void {
    if (outcome.kind === "success") {
      acknowledge(mutation, outcome.data);
      recordCreate(mutation, outcome.data);
    } else if (outcome.kind === "disconnected" || outcome.kind === "refused") {
      abandon(mutation);
      recordCreate(mutation, undefined);
    }
    if (outcome.kind === "refused" && outcome.code !== "service_unavailable")
      known.unexpected.push(`${mutation.operation}: ${outcome.code}`);
  }

  return {
    kind,
    async write(client) {
      for (;;) {
        const mutation = chooseMutation();
        const { operation, credential, request, idempotencyKey } = mutation;
        const outcome = await client.call(operation, credential, request, {
          ...(idempotencyKey !== undefined && { idempotencyKey }),
        });
        settle(mutation, outcome);
        if (outcome.kind === "unsent" || outcome.kind === "disconnected") return;
      }
    },
  };
}
