import type { Call } from "../call/call.js";
import type { MaybePromise } from "../call/maybe-promise.js";
import type { InSnapshot } from "../storage/postgres/connection.js";
import type { Cache } from "../storage/redis/client.js";
import type { ChangeLog, Versioned } from "./change-log.js";
import { heapSizeOf } from "./heap-size.js";
import type { KeyRecord, KeyState } from "./key-state.js";
import type { Lease } from "./lease.js";
import { keyEntries, workspaceEntries } from "./signed-entry.js";
import { parseSnapshot, type Snapshot } from "./snapshot.js";
import { createTieredCache, type TieredCache } from "./tiered-cache.js";

/** Answers, for all protocols, how a key and its workspace stand. */
export interface KeyCache {
  /** How often keys and workspaces were found where. */
  readonly lookups: Readonly<Record<"key" | "workspace", TieredCache<unknown>["lookups"]>>;
  /** The key with this secret, by its hash in hex, if that can be answered at once. No acknowledged change is missing. */
  peek(hash: string): KeyState | undefined;
  /**
   * The same for any key. Undefined if there is none; throws when nobody can be asked. Calls that want the same share a
   * lookup; so none ends with a call, and it is charged to the one that it was begun for, and told of in its span.
   */
  get(hash: string, call?: Call): Promise<KeyState | undefined>;
  /** The same for a caller that was looked up before: at once if possible, and that it is held is not counted again. */
  recheck(hash: string, call?: Call): MaybePromise<KeyState | undefined>;
  /** The same by Postgres alone: with changes that are committed, and not acknowledged yet. */
  readThrough(hash: string, call?: Call): Promise<KeyState | undefined>;
  /** For calls that need no key: throws when Postgres is away, so that they are told at once. */
  ensureLease(): MaybePromise<void>;
  /** To be awaited after each change: resolves when every replica answers by it. */
  awaitPropagation(): Promise<void>;
  /**
   * To be awaited before an answer that rests on earlier changes and made none itself: the caller may be trying again
   * after an unknown outcome. Resolves when every change that it was read from is durable, and every replica answers by it.
   *
   * @param history the `knownHistory` from before the reading
   */
  awaitEarlierChanges(call: Call, history: string): Promise<void>;
  /** The same before an answer about what replicas hold nothing of: resolves when every such change is durable. */
  awaitDurability(call: Call, history: string): Promise<void>;
  /** Names the history of the database, as far as it is known by now: a server that takes over begins another. */
  knownTimeline(): string;
  /** To be called when changes were learnt, so that what is held is confirmed before they are forgotten. */
  confirm(): void;
}

/** Where facts come from when they are not held, and what makes changes durable. */
export interface KeyCacheSources {
  readonly readKeyRecord: (hash: string, call?: Call) => Promise<InSnapshot<KeyRecord> | undefined>;
  readonly readWorkspaceState: (
    workspaceId: string,
    call?: Call,
  ) => Promise<InSnapshot<{ enabled: boolean }> | undefined>;
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
export function createKeyCache(
  lease: Lease,
  changes: ChangeLog,
  cache: Cache,
  sources: KeyCacheSources,
  capacity: number,
): KeyCache {
  const secret = () => changes.timeline;
  const workspaces = createTieredCache({
    form: workspaceEntries(secret),
    changes,
    cache,
    async read(workspaceId, call) {
      const state = await sources.readWorkspaceState(workspaceId, call);
      return state && workspaceFact(workspaceId, state.enabled, parseSnapshot(state.snapshot));
    },
    capacity: capacity * workspacesShare,
    sizeOf: heapSizeOf,
  });
  const keys = createTieredCache({
    form: keyEntries(secret),
    changes,
    cache,
    async read(hash, call) {
      const standing = await sources.readKeyRecord(hash, call);
      if (standing === undefined) return undefined;
      const { snapshot, ...value } = standing;
      const { keyId, identityId, workspaceId } = value;
      return {
        value,
        dependsOn: identityId ? [keyId, identityId] : [keyId],
        workspaceId,
        snapshot: parseSnapshot(snapshot),
      };
    },
    // A key is read together with the state of its workspace.
    onLoad: ({ value: { workspaceId, workspaceEnabled }, snapshot: asOf }) => {
      const fact = workspaceFact(workspaceId, workspaceEnabled, asOf);
      if (workspaces.put(workspaceId, fact)) workspaces.publish(workspaceId, fact);
    },
    capacity: capacity * (1 - workspacesShare),
    sizeOf: (fact) => Math.ceil(verdictsShare * heapSizeOf(fact)),
  });

  function heldNow(hash: string): KeyState | undefined {
    const key = lease.remaining() > 0 ? keys.peek(hash) : undefined;
    if (key === undefined) return undefined;
    const workspaceEnabled = workspaces.peek(key.workspaceId);
    return workspaceEnabled === undefined ? undefined : { key, workspaceEnabled };
  }

  async function lookUp(hash: string, call: Call | undefined, countsHeld: boolean): Promise<KeyState | undefined> {
    await lease.ensure();
    const heldKey = keys.peek(hash);
    const key = heldKey ?? (await keys.load(hash, "redis", call));
    if (key === undefined) return undefined;
    // One question to Redis is enough for one call.
    const from = heldKey ? "redis" : "postgres";
    const { workspaceId } = key;
    const heldState = workspaces.peek(workspaceId);
    if (countsHeld && heldKey !== undefined) keys.lookups.memory += 1;
    if (countsHeld && heldState !== undefined) workspaces.lookups.memory += 1;
    return { key, workspaceEnabled: heldState ?? (await workspaces.load(workspaceId, from, call)) ?? false };
  }

  return {
    lookups: { key: keys.lookups, workspace: workspaces.lookups },

    peek(hash) {
      const found = heldNow(hash);
      if (found === undefined) return undefined;
      keys.lookups.memory += 1;
      workspaces.lookups.memory += 1;
      return found;
    },

    get: (hash, call) => lookUp(hash, call, true),
    recheck: (hash, call) => heldNow(hash) ?? lookUp(hash, call, false),

    async readThrough(hash, call) {
      const standing = await sources.readKeyRecord(hash, call);
      return standing && { key: standing, workspaceEnabled: standing.workspaceEnabled };
    },

    ensureLease: () => lease.ensure(),
    awaitPropagation: () => lease.waitOut(),

    knownTimeline: secret,

    awaitDurability: sources.makeDurable,

    async awaitEarlierChanges(call, history) {
      await sources.makeDurable(call, history);
      await lease.waitOut();
    },

    confirm() {
      keys.confirm();
      workspaces.confirm();
    },
  };
}

function workspaceFact(workspaceId: string, enabled: boolean, asOf: Snapshot): Versioned<boolean> {
  return { value: enabled, dependsOn: [workspaceId], workspaceId, snapshot: asOf };
}
