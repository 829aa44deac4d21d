import type { Call } from "../call/call.js";
import type { Soon } from "../call/maybe-promise.js";
import type { InSnapshot } from "../storage/postgres/connection.js";
import type { Cache } from "../storage/redis/client.js";
import type { Changes, Fact } from "./change-log.js";
import { weightOf } from "./heap-size.js";
import type { KeyRecord, KeyState } from "./key-state.js";
import type { Lease } from "./lease.js";
import { keyEntries, workspaceEntries } from "./signed-entry.js";
import { parseSnapshot, type Snapshot } from "./snapshot.js";
import { createShelf, type Shelf } from "./tiered-cache.js";

/** Answers, for all doors, how a key and its workspace stand. */
export interface Holdings {
  /** How often keys and workspaces were found where. */
  readonly lookups: Readonly<Record<"key" | "workspace", Shelf<unknown>["lookups"]>>;
  /** The key with this secret, by its hash in hex, if that can be answered at once. No acknowledged change is missing. */
  held(hash: string): KeyState | undefined;
  /**
   * The same for any key. Undefined if there is none; throws when nobody can be asked. Calls that want the same share a
   * lookup; so none ends with a call, and it is charged to the one that it was begun for, and told of in its span.
   */
  find(hash: string, call?: Call): Promise<KeyState | undefined>;
  /** The same for a caller that was looked up before: at once if possible, and that it is held is not counted again. */
  recheck(hash: string, call?: Call): Soon<KeyState | undefined>;
  /** The same by Postgres alone: with changes that are committed, and not acknowledged yet. */
  read(hash: string, call?: Call): Promise<KeyState | undefined>;
  /** For calls that need no key: throws when Postgres is away, so that they are told at once. */
  ready(): Soon<void>;
  /** To be awaited after each change: resolves when every replica answers by it. */
  changed(): Promise<void>;
  /**
   * To be awaited before an answer that rests on earlier changes and made none itself: the caller may be trying again
   * after an unknown outcome. Resolves when every change that it was read from is durable, and every replica answers by it.
   *
   * @param history the `knownHistory` from before the reading
   */
  settled(call: Call, history: string): Promise<void>;
  /** The same before an answer about what replicas hold nothing of: resolves when every such change is durable. */
  durable(call: Call, history: string): Promise<void>;
  /** Names the history of the database, as far as it is known by now: a server that takes over begins another. */
  knownHistory(): string;
  /** To be called when changes were learnt, so that what is held is confirmed before they are forgotten. */
  confirm(): void;
}

/** Where facts come from when they are not held, and what makes changes durable. */
export interface HoldingsSources {
  readonly readStanding: (hash: string, call?: Call) => Promise<InSnapshot<KeyRecord> | undefined>;
  readonly readState: (workspaceId: string, call?: Call) => Promise<InSnapshot<{ enabled: boolean }> | undefined>;
  readonly makeDurable: (call: Call, history: string) => Promise<void>;
}

/** With a key, the verdict on it is kept, as a message and as it was written. An estimate: some more than the key each. */
const verdictsShare = 2.5;

/** How much of what is held may be workspaces: by their weights, there is room for that of every key. */
const workspacesShare = 1 / 8;

/**
 * This process over Redis over Postgres. Only the lease gives the right to answer from what is held, and only the fence
 * decides what may be held; so nothing rests on Redis, which may lose, delay or repeat what it likes.
 *
 * @param capacity how much is held, in bytes of heap
 */
export function createHoldings(
  lease: Lease,
  changes: Changes,
  cache: Cache,
  sources: HoldingsSources,
  capacity: number,
): Holdings {
  const secret = () => changes.history;
  const workspaces = createShelf({
    form: workspaceEntries(secret),
    changes,
    cache,
    async read(workspaceId, call) {
      const state = await sources.readState(workspaceId, call);
      return state && workspaceFact(workspaceId, state.enabled, parseSnapshot(state.snapshot));
    },
    capacity: capacity * workspacesShare,
    weigh: weightOf,
  });
  const keys = createShelf({
    form: keyEntries(secret),
    changes,
    cache,
    async read(hash, call) {
      const standing = await sources.readStanding(hash, call);
      if (standing === undefined) return undefined;
      const { snapshot, ...value } = standing;
      const { keyId, identityId, workspaceId } = value;
      return { value, rows: identityId ? [keyId, identityId] : [keyId], workspaceId, asOf: parseSnapshot(snapshot) };
    },
    // A key is read together with the state of its workspace.
    onArrival: ({ value: { workspaceId, workspaceEnabled }, asOf }) => {
      const fact = workspaceFact(workspaceId, workspaceEnabled, asOf);
      if (workspaces.hold(workspaceId, fact)) workspaces.share(workspaceId, fact);
    },
    capacity: capacity * (1 - workspacesShare),
    weigh: (fact) => Math.ceil(verdictsShare * weightOf(fact)),
  });

  function heldNow(hash: string): KeyState | undefined {
    const key = lease.timeLeft() > 0 ? keys.held(hash) : undefined;
    if (key === undefined) return undefined;
    const workspaceEnabled = workspaces.held(key.workspaceId);
    return workspaceEnabled === undefined ? undefined : { key, workspaceEnabled };
  }

  async function lookUp(hash: string, call: Call | undefined, countsHeld: boolean): Promise<KeyState | undefined> {
    await lease.ensure();
    const heldKey = keys.held(hash);
    const key = heldKey ?? (await keys.fetch(hash, "redis", call));
    if (key === undefined) return undefined;
    // One question to Redis is enough for one call.
    const from = heldKey ? "redis" : "postgres";
    const { workspaceId } = key;
    const heldState = workspaces.held(workspaceId);
    if (countsHeld && heldKey !== undefined) keys.lookups.held += 1;
    if (countsHeld && heldState !== undefined) workspaces.lookups.held += 1;
    return { key, workspaceEnabled: heldState ?? (await workspaces.fetch(workspaceId, from, call)) ?? false };
  }

  return {
    lookups: { key: keys.lookups, workspace: workspaces.lookups },

    held(hash) {
      const found = heldNow(hash);
      if (found === undefined) return undefined;
      keys.lookups.held += 1;
      workspaces.lookups.held += 1;
      return found;
    },

    find: (hash, call) => lookUp(hash, call, true),
    recheck: (hash, call) => heldNow(hash) ?? lookUp(hash, call, false),

    async read(hash, call) {
      const standing = await sources.readStanding(hash, call);
      return standing && { key: standing, workspaceEnabled: standing.workspaceEnabled };
    },

    ready: () => lease.ensure(),
    changed: () => lease.outlast(),

    knownHistory: secret,

    durable: sources.makeDurable,

    async settled(call, history) {
      await sources.makeDurable(call, history);
      await lease.outlast();
    },

    confirm() {
      keys.confirm();
      workspaces.confirm();
    },
  };
}

function workspaceFact(workspaceId: string, enabled: boolean, asOf: Snapshot): Fact<boolean> {
  return { value: enabled, rows: [workspaceId], workspaceId, asOf };
}
