import type { Call } from "../call/call.js";
import type { MaybePromise } from "../call/maybe-promise.js";
import type { InSnapshot } from "../storage/postgres/connection.js";
import type { Cache } from "../storage/redis/client.js";
import type { ChangeLog, Versioned } from "./change-log.js";
import { heapSizeOf } from "./heap-size.js";
import { type KeyRecord, type KeyState, rowsOf, type WorkspaceState, workspaceState } from "./key-state.js";
import type { Lease } from "./lease.js";
import { keyEntries, workspaceEntries } from "./signed-entry.js";
import { parseSnapshot, type Snapshot } from "./snapshot.js";
import { createTieredCache, type TieredCache } from "./tiered-cache.js";

/** Returns the state of keys and their workspaces, for all protocols. */
export interface KeyCache {
  /** The number of lookups of keys and workspaces that each level answered. */
  readonly lookups: Readonly<Record<"key" | "workspace", TieredCache<unknown>["lookups"]>>;
  /**
   * The key with this secret, by its hash in hex, if memory can answer at once. No acknowledged change is missing in
   * it.
   */
  peek(hash: string): KeyState | undefined;
  /**
   * The same for any key. Undefined if there is none. Throws if PostgreSQL is needed and cannot be asked. Concurrent
   * calls for the same key share one lookup. So no lookup is cancelled with a call; it is charged to the call that
   * began it, and traced in that call's span.
   */
  get(hash: string, call?: Call): Promise<KeyState | undefined>;
  /**
   * The same for a caller that was looked up before: synchronous if possible, and a hit in memory is not counted again.
   */
  recheck(hash: string, call?: Call): MaybePromise<KeyState | undefined>;
  /**
   * The same from PostgreSQL alone, including changes that are committed and not acknowledged yet. Reads the time of the
   * database, too.
   */
  readThrough(hash: string, call?: Call): Promise<KeyState | undefined>;
  /**
   * Whether a workspace may contain imported keys, whose secrets have another format than those of this service. True if
   * memory cannot answer.
   */
  mayHaveImports(workspaceId: string): boolean;
  /** For calls that need no key: throws if PostgreSQL is unavailable, so that they are refused at once. */
  ensureLease(): MaybePromise<void>;
  /** Must be awaited after each change. Resolves when every replica's answers include the change. */
  awaitPropagation(): Promise<void>;
  /**
   * Must be awaited before a response that depends on earlier changes and made none itself: the client may be retrying
   * after an unknown outcome. Resolves when every change that was read is durable, and every replica's answers include
   * it.
   *
   * @param timeline the result of `knownTimeline` from before the read
   */
  awaitEarlierChanges(call: Call, timeline: string): Promise<void>;
  /** The same before a response about data that replicas do not cache. Resolves when every such change is durable. */
  awaitDurability(call: Call, timeline: string): Promise<void>;
  /** The last known timeline of the database. A server that takes over begins another. */
  knownTimeline(): string;
  /**
   * Must be called after changes were appended, so that cached values are confirmed before the changes are forgotten.
   */
  confirm(): void;
}

/** Reads values from PostgreSQL that are not cached, and makes changes durable. */
export interface KeyCacheSources {
  readonly readKeyRecord: (hash: string, call?: Call) => Promise<InSnapshot<KeyRecord> | undefined>;
  readonly readWorkspaceState: (workspaceId: string, call?: Call) => Promise<InSnapshot<WorkspaceState> | undefined>;
  readonly makeDurable: (call: Call, timeline: string) => Promise<void>;
}

/**
 * The verification result is cached with its key, as a message and encoded. This factor is an estimate: each of the two
 * takes somewhat more than the key.
 */
const resultsFactor = 2.5;

/** The last use of a key and its counts, which are kept as long as its cached state: 250 bytes of heap in Node 20. */
const usesBytes = 300;

/** The share of workspaces in the capacity. Given their sizes, there is space for the workspace of every key. */
const workspacesShare = 1 / 8;

/**
 * Process memory, then Redis, then PostgreSQL. Only the lease gives the right to answer from memory, and only the fence
 * decides which values may be cached. So nothing depends on Redis, which may lose, delay or repeat entries.
 *
 * @param capacity the maximum size of the values in memory, in bytes of heap
 */
export function createKeyCache(
  lease: Lease,
  changeLog: ChangeLog,
  cache: Cache,
  sources: KeyCacheSources,
  capacity: number,
): KeyCache {
  const knownTimeline = () => changeLog.timeline;
  const workspaces = createTieredCache({
    codec: workspaceEntries(knownTimeline),
    changeLog,
    cache,
    async read(workspaceId, call) {
      const state = await sources.readWorkspaceState(workspaceId, call);
      return state && versionedState(workspaceId, state, parseSnapshot(state.snapshot));
    },
    capacity: capacity * workspacesShare,
    sizeOf: heapSizeOf,
  });
  const keys = createTieredCache({
    codec: keyEntries(knownTimeline),
    changeLog,
    cache,
    async read(hash, call) {
      const record = await sources.readKeyRecord(hash, call);
      if (record === undefined) return undefined;
      const { snapshot, ...value } = record;
      return {
        value,
        dependsOn: rowsOf(value),
        workspaceId: value.workspaceId,
        snapshot: parseSnapshot(snapshot),
      };
    },
    // A key is read together with the state of its workspace.
    onLoad: ({ value: { workspaceId, workspaceEnabled, workspaceHasImports }, snapshot }) => {
      const present = { enabled: workspaceEnabled, hasImports: workspaceHasImports };
      const state = versionedState(workspaceId, present, snapshot);
      if (workspaces.put(workspaceId, state)) workspaces.publish(workspaceId, state);
    },
    capacity: capacity * (1 - workspacesShare),
    sizeOf: (versioned) => usesBytes + Math.ceil(resultsFactor * heapSizeOf(versioned)),
  });

  function peekBoth(hash: string): KeyState | undefined {
    const key = lease.remaining() > 0 ? keys.peek(hash) : undefined;
    if (key === undefined) return undefined;
    const state = workspaces.peek(key.workspaceId);
    return state && { key, workspaceEnabled: state.enabled };
  }

  async function lookUp(hash: string, call: Call | undefined, countsMemory: boolean): Promise<KeyState | undefined> {
    await lease.ensure();
    const cachedKey = keys.peek(hash);
    const key = cachedKey ?? (await keys.load(hash, "redis", call));
    if (key === undefined) return undefined;
    // One read of Redis is enough for one call.
    const from = cachedKey ? "redis" : "postgres";
    const { workspaceId } = key;
    const cachedState = workspaces.peek(workspaceId);
    if (countsMemory && cachedKey !== undefined) keys.lookups.memory += 1;
    if (countsMemory && cachedState !== undefined) workspaces.lookups.memory += 1;
    const state = cachedState ?? (await workspaces.load(workspaceId, from, call));
    // A deleted workspace has no state, and its keys do not exist.
    return state && { key, workspaceEnabled: state.enabled };
  }

  return {
    lookups: { key: keys.lookups, workspace: workspaces.lookups },

    peek(hash) {
      const found = peekBoth(hash);
      if (found === undefined) return undefined;
      keys.lookups.memory += 1;
      workspaces.lookups.memory += 1;
      return found;
    },

    get: (hash, call) => lookUp(hash, call, true),
    recheck: (hash, call) => peekBoth(hash) ?? lookUp(hash, call, false),

    async readThrough(hash, call) {
      // Without the present time, a key that a statement found expired could be taken for valid again, and again.
      await lease.renew();
      const record = await sources.readKeyRecord(hash, call);
      return record && { key: record, workspaceEnabled: record.workspaceEnabled };
    },

    mayHaveImports(workspaceId) {
      const state = lease.remaining() > 0 ? workspaces.peek(workspaceId) : undefined;
      return state?.hasImports ?? true;
    },

    ensureLease: () => lease.ensure(),
    awaitPropagation: () => lease.waitOut(),

    knownTimeline,

    awaitDurability: sources.makeDurable,

    async awaitEarlierChanges(call, timeline) {
      await sources.makeDurable(call, timeline);
      await lease.waitOut();
    },

    confirm() {
      keys.confirm();
      workspaces.confirm();
    },
  };
}

function versionedState(workspaceId: string, state: WorkspaceState, snapshot: Snapshot): Versioned<WorkspaceState> {
  return { value: workspaceState(state), dependsOn: [workspaceId], workspaceId, snapshot };
}
