import type { OperationName } from "../contract/operations.js";
import type { Rules } from "../support/integrity.js";
import type { Random } from "../verification/faults/random.js";
import type { Caller, CallerKind, Fate, Fields } from "./callers.js";
import type { Change, Ledger } from "./ledger.js";
import type { Create } from "./repetitions.js";

/** What is known of a secret: whether it is good, or undefined if a change to that came to an unknown end. */
export type Standings = Map<string, { readonly workspaceKey: string; good: boolean | undefined }>;

/** One who changes the resources of a workspace, one after the other; nobody else does. */
export interface Writer {
  readonly kind: CallerKind;
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
  /** What was sent with an Idempotency-Key. */
  readonly creates: Create[];
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
  /** With which it is sent again when nobody knows whether it happened. */
  readonly idempotencyKey?: string;
  acknowledged(data: Fields): readonly Change[];
  /** Nobody knows whether it happened: what it touches is left alone from now on. */
  abandoned(): void;
}

/** What holds of what writers have written: they call the identities that they have made for a key its owners. */
export const ownerRules: Rules = {
  "an identity that was made for a key has that key": (sql) => sql`
    select event_id from audit_events as made
    where type = 'identity.create' and after ->> 'externalId' like 'owner-%' and not exists (
      select from audit_events
      where type in ('key.create', 'key.update') and request_id = made.request_id
        and after ->> 'identityId' = made.resource_id)`,
};

/** How many of those that create something do so with an Idempotency-Key. */
const keyedShare = 0.75;

/** Makes a writer for the workspace that this key is of. */
export function createWriter(
  kind: CallerKind,
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
  const sometimesKeyed = () => (random.chance(keyedShare) ? { idempotencyKey: unique("attempt") } : {});

  const creation = (operation: OperationName, request: Fields, acknowledged: Move["acknowledged"]): Move => ({
    operation,
    credential: workspaceKey,
    request,
    ...sometimesKeyed(),
    acknowledged,
    abandoned: () => {},
  });

  /** A change of a key that is there. */
  const ofKey = (
    operation: OperationName,
    more: Fields,
    acknowledged: (key: { keyId: string; secret: string }, data: Fields) => Change[],
  ): Move => {
    const [keyId, secret] = random.pick([...keys]);
    return {
      operation,
      credential: workspaceKey,
      request: { keyId, ...more },
      resourceId: keyId,
      secret,
      acknowledged: (data) => acknowledged({ keyId, secret }, data),
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
  function revoke({ keyId, secret }: { keyId: string; secret: string }): void {
    const standing = known.keys.get(secret);
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
  const makeRootKey = (): Move => {
    const [workspaceId] = random.pick([...workspaces]);
    const name = unique("root key");
    return {
      ...creation("createRootKey", { workspaceId, name }, ({ keyId }) => {
        return [{ type: "key.create", resourceId: String(keyId), after: { name } }];
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
          ofKey("updateKey", { name, ...(random.chance(0.5) && { externalId: unique("owner") }) }, ({ keyId }) => [
            { type: "key.update", resourceId: keyId, after: { name } },
          ]),
        () =>
          ofKey("updateKey", { enabled: false }, (key) => {
            revoke(key);
            return [{ type: "key.update", resourceId: key.keyId, after: { enabled: false } }];
          }),
        () =>
          ofKey("deleteKey", {}, (key) => {
            revoke(key);
            return [{ type: "key.delete", resourceId: key.keyId }];
          }),
        () => ({
          ...ofKey("rerollKey", { expiration: 0 }, (key, data) => {
            revoke(key);
            return [{ type: "key.reroll", resourceId: key.keyId }, ...keep(data, { enabled: true })];
          }),
          ...sometimesKeyed(),
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
    if (workspaces.size > 0) moves.push(switchWorkspace, switchWorkspace, makeRootKey);
    return random.pick(moves)();
  }

  function acknowledge({ operation, acknowledged }: Move, data: Fields): void {
    known.counts.set(operation, (known.counts.get(operation) ?? 0) + 1);
    known.ledger.enter(...acknowledged(data));
  }

  /** The service said that it could not, or said nothing: either way, the change may have been made. */
  function abandon({ resourceId, secret = "", idempotencyKey, abandoned }: Move): void {
    // What became of those with an Idempotency-Key will be known when they are sent again.
    if (resourceId !== undefined && idempotencyKey === undefined) known.ledger.doubt(resourceId);
    const standing = known.keys.get(secret) ?? known.callers.get(secret);
    if (standing) standing.good = undefined;
    abandoned();
  }

  /** Keeps what can be sent again: with its answer, if there was one. */
  function keepCreate(move: Move, answer: Fields | undefined): void {
    const { operation, credential, request, idempotencyKey } = move;
    if (idempotencyKey === undefined) return;
    const learn = (data: Fields) => acknowledge(move, data);
    known.creates.push({ through: kind, operation, credential, request, idempotencyKey, answer, learn });
  }

  function settle(move: Move, fate: Fate): void {
    if (fate.kind === "answered") {
      acknowledge(move, fate.data);
      keepCreate(move, fate.data);
    } else if (fate.kind === "cut" || fate.kind === "declined") {
      abandon(move);
      keepCreate(move, undefined);
    }
    if (fate.kind === "declined" && fate.code !== "service_unavailable")
      known.unexpected.push(`${move.operation}: ${fate.code}`);
  }

  return {
    kind,
    async write(caller) {
      for (;;) {
        const move = chooseMove();
        const fate = await caller.call(move.operation, move.credential, move.request, move.idempotencyKey);
        settle(move, fate);
        if (fate.kind === "unsent" || fate.kind === "cut") return;
      }
    },
  };
}
