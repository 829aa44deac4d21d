import type { OperationName } from "../contract/operations.js";
import type { Random } from "../faults/random.js";
import type { Caller, Fate, Fields } from "./callers.js";
import type { Change, Ledger } from "./ledger.js";

/** What is known of a secret: whether it is good, or undefined if a change to that came to an unknown end. */
export type Standings = Map<string, { readonly workspaceKey: string; good: boolean | undefined }>;

/** One who changes the resources of a workspace, one after the other; nobody else does. */
export interface Writer {
  /** Writes until the service is gone. */
  write(caller: Caller): Promise<void>;
}

/** What all writers know together. */
export interface Knowledge {
  readonly ledger: Ledger;
  /** Of keys, as they are verified in their workspace. */
  readonly keys: Standings;
  /** Of the keys of workspaces that are disabled and enabled, as they call. */
  readonly callers: Standings;
  /** What must not happen, in words. */
  readonly unexpected: string[];
  /** How often each operation was acknowledged. */
  readonly counts: Map<OperationName, number>;
}

/** A call that changes something: whose, and what follows from its acknowledgement. */
interface Move {
  readonly operation: OperationName;
  readonly credential: string;
  readonly request: Fields;
  /** What it changes that is there already. */
  readonly resourceId?: string;
  /** The secret whose standing it changes. */
  readonly secret?: string;
  acknowledged(data: Fields): readonly Change[];
  /** Nobody knows whether it happened: what it touches is left alone from now on. */
  abandoned(): void;
}

/** Makes a writer for the workspace that this key is of. */
export function createWriter(
  name: string,
  workspaceKey: string,
  operatorKey: string,
  random: Random,
  known: Knowledge,
): Writer {
  let turn = 0;
  const keys = new Map<string, string>();
  const identities = new Set<string>();
  const workspaces = new Map<string, { readonly key: string; enabled: boolean }>();
  const unique = (what: string) => `${what}-${name}-${++turn}`;

  const creation = (operation: OperationName, request: Fields, acknowledged: Move["acknowledged"]): Move => ({
    operation,
    credential: workspaceKey,
    request,
    acknowledged,
    abandoned: () => {},
  });

  /** A change of a key that is there. */
  const ofKey = (operation: OperationName, more: Fields, acknowledged: (keyId: string, data: Fields) => Change[]) => {
    const [keyId, secret] = random.pick([...keys]);
    return {
      operation,
      credential: workspaceKey,
      request: { keyId, ...more },
      resourceId: keyId,
      secret,
      acknowledged: (data: Fields) => acknowledged(keyId, data),
      abandoned: () => keys.delete(keyId),
    };
  };

  const ofIdentity = (operation: OperationName, more: Fields, acknowledged: (identityId: string) => Change[]): Move => {
    const identityId = random.pick([...identities]);
    return {
      operation,
      credential: workspaceKey,
      request: { identityId, ...more },
      resourceId: identityId,
      acknowledged: () => acknowledged(identityId),
      abandoned: () => identities.delete(identityId),
    };
  };

  function keep(data: Fields, after: Fields): Change[] {
    const { keyId, key } = data as { keyId: string; key: string };
    keys.set(keyId, key);
    known.keys.set(key, { workspaceKey, good: true });
    return [{ type: "key.create", resourceId: keyId, after }];
  }

  /** From now on this key is refused; it is not changed any more. */
  function revoke(keyId: string): void {
    const standing = known.keys.get(keys.get(keyId) ?? "");
    if (standing) standing.good = false;
    keys.delete(keyId);
  }

  const makeKey = () => {
    const request = { name: unique("key"), ...(random.chance(0.5) && { externalId: unique("owner") }) };
    return creation("createKey", request, (data) => keep(data, { name: request.name }));
  };
  const makeIdentity = () => {
    const externalId = unique("user");
    return creation("createIdentity", { externalId }, (data) => {
      const identityId = String(data["identityId"]);
      identities.add(identityId);
      return [{ type: "identity.create", resourceId: identityId, after: { externalId } }];
    });
  };
  const makeWorkspace = (): Move => {
    const name = unique("workspace");
    return {
      ...creation("createWorkspace", { name }, (data) => {
        const { workspaceId, keyId, key } = data as Record<"workspaceId" | "keyId" | "key", string>;
        workspaces.set(workspaceId, { key, enabled: true });
        known.callers.set(key, { workspaceKey: key, good: true });
        return [
          { type: "workspace.create", resourceId: workspaceId, after: { name } },
          { type: "key.create", resourceId: keyId, after: { name: "first key" } },
        ];
      }),
      credential: operatorKey,
    };
  };
  const switchWorkspace = (): Move => {
    const [workspaceId, workspace] = random.pick([...workspaces]);
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
        (known.callers.get(key) as { good: boolean }).good = !enabled;
        const after = enabled ? { enabled: false, disabledNote: note } : { enabled: true };
        return [{ type: enabled ? "workspace.disable" : "workspace.enable", resourceId: workspaceId, after }];
      },
      abandoned: () => workspaces.delete(workspaceId),
    };
  };

  function chooseMove(): Move {
    const moves = [makeKey, makeKey, makeIdentity, makeWorkspace];
    if (keys.size > 0) {
      const name = unique("renamed");
      moves.push(
        () =>
          ofKey("updateKey", { name, ...(random.chance(0.5) && { externalId: unique("owner") }) }, (keyId) => [
            { type: "key.update", resourceId: keyId, after: { name } },
          ]),
        () =>
          ofKey("updateKey", { enabled: false }, (keyId) => {
            revoke(keyId);
            return [{ type: "key.update", resourceId: keyId, after: { enabled: false } }];
          }),
        () =>
          ofKey("deleteKey", {}, (keyId) => {
            revoke(keyId);
            return [{ type: "key.delete", resourceId: keyId }];
          }),
        () =>
          ofKey("rerollKey", { expiration: 0 }, (keyId, data) => {
            revoke(keyId);
            return [{ type: "key.reroll", resourceId: keyId }, ...keep(data, { enabled: true })];
          }),
      );
    }
    if (identities.size > 0) {
      const meta = { turn: unique("meta") };
      moves.push(
        () =>
          ofIdentity("updateIdentity", { meta }, (identityId) => [
            { type: "identity.update", resourceId: identityId, after: { meta } },
          ]),
        () =>
          ofIdentity("deleteIdentity", {}, (identityId) => {
            identities.delete(identityId);
            return [{ type: "identity.delete", resourceId: identityId }];
          }),
      );
    }
    if (workspaces.size > 0) moves.push(switchWorkspace, switchWorkspace);
    return random.pick(moves)();
  }

  /** The service said that it could not, or said nothing: either way, the change may have been made. */
  function abandon({ resourceId, secret = "", abandoned }: Move): void {
    if (resourceId !== undefined) known.ledger.doubt(resourceId);
    const standing = known.keys.get(secret) ?? known.callers.get(secret);
    if (standing) standing.good = undefined;
    abandoned();
  }

  function settle(move: Move, fate: Fate): void {
    const { operation } = move;
    if (fate.kind === "answered") {
      known.counts.set(operation, (known.counts.get(operation) ?? 0) + 1);
      known.ledger.enter(...move.acknowledged(fate.data));
    } else if (fate.kind === "cut") abandon(move);
    else if (fate.kind === "declined") {
      abandon(move);
      if (fate.code !== "service_unavailable") known.unexpected.push(`${operation}: ${fate.code}`);
    }
  }

  return {
    async write(caller) {
      for (;;) {
        const move = chooseMove();
        const fate = await caller.call(move.operation, move.credential, move.request);
        settle(move, fate);
        if (fate.kind === "unsent" || fate.kind === "cut") return;
      }
    },
  };
}
