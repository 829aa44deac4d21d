import { LRUCache } from "lru-cache";
import type { Call } from "../call/call.js";
import { serviceUnavailable } from "../errors.js";
import type { Cache } from "../storage/redis/client.js";
import type { ChangeLog, Versioned } from "./change-log.js";
import type { EntryCodec } from "./signed-entry.js";
import { includes } from "./snapshot.js";

/** Values of one kind: some cached in process memory, more of them in Redis, all of them in PostgreSQL. */
export interface TieredCache<T> {
  /** The number of lookups that each level answered. The user of the cache counts those of `memory`. */
  readonly lookups: Record<"memory" | "redis" | "postgres", number>;
  /** The value in memory, if it is current: no known change is missing in it. */
  peek(id: string): T | undefined;
  /** Undefined if there is no such value. Throws if PostgreSQL is needed and cannot be asked. */
  load(id: string, from: "redis" | "postgres", call?: Call): Promise<T | undefined>;
  /**
   * Caches a value that was read together with another, if it is current. Returns true if the value was not cached yet.
   */
  put(id: string, versioned: Versioned<T>): boolean;
  /** Writes a value to Redis for other replicas, unless it is large. Nothing depends on its arrival. */
  publish(id: string, versioned: Versioned<T>): void;
  /**
   * Confirms a part of the values in memory. Must be called after changes were appended to the change log, so that
   * every value is confirmed before the changes since its snapshot are forgotten.
   */
  confirm(): void;
}

export interface TieredCacheOptions<T> {
  readonly codec: EntryCodec<T>;
  readonly changeLog: ChangeLog;
  readonly cache: Cache;
  readonly read: (id: string, call?: Call) => Promise<Versioned<T> | undefined>;
  /**
   * Runs the fetch of a value, or throws at once because its workspace has too many in flight. Absent if the workspace of a
   * value is not known before it was fetched.
   */
  readonly limitFetch?: (
    id: string,
    fetch: () => Promise<Versioned<T> | undefined>,
  ) => Promise<Versioned<T> | undefined>;
  /** Called with each value that was read from PostgreSQL or Redis. */
  readonly onLoad?: (versioned: Versioned<T>) => void;
  /** The maximum size of the values in memory, in bytes of heap. */
  readonly capacity: number;
  /** The number of bytes of a value, including what is derived from it for as long as it is cached. */
  readonly sizeOf: (versioned: Versioned<T>) => number;
}

/**
 * The lifetime of an entry in Redis. It is long, because the fence and not the lifetime prevents the use of old
 * entries.
 */
const redisLifetimeMs = 10 * 60_000;

/**
 * The maximum length of an entry in Redis, four times that of an ordinary key. A key may have 200 KB of permissions by its roles,
 * and one tenant could fill Redis with such keys. Other processes read them from PostgreSQL.
 */
const maxEntryLength = 4_096;

/** The overhead of a cached value in bytes: its id, and its slot in the LRU cache. */
const overheadBytes = 220;

/** The maximum number of different values fetched at a time. They are a second or two of work for PostgreSQL. */
const maxInFlight = 10_000;

/** The maximum number of fetches for one call, when each result was outdated by a change before it arrived. */
const maxFetches = 5;

/** How often every value in memory is confirmed before the changes since its snapshot are forgotten. */
const confirmationsPerWindow = 3;

interface CachedValue<T> {
  readonly id: string;
  versioned: Versioned<T>;
  /** The version of the change log in which the value was last found current. */
  version: number;
}

export function createTieredCache<T>({
  codec,
  changeLog,
  cache,
  read,
  limitFetch = (_id, fetch) => fetch(),
  onLoad,
  capacity,
  sizeOf,
}: TieredCacheOptions<T>): TieredCache<T> {
  const memory = new LRUCache<string, CachedValue<T>>({ maxSize: capacity });
  /** Iterates over all values in memory, the least recently used first. */
  let iterator = memory.rvalues();
  let nextToConfirm: CachedValue<T> | undefined;
  const inFlight = new Map<string, Promise<Versioned<T> | undefined>>();
  const lookups = { memory: 0, redis: 0, postgres: 0 };
  let { timeline, appended: appendedAtConfirm } = changeLog;

  /**
   * Whether no known change is missing in the value. If so, it is as good as read at present; if not, it is dropped.
   */
  function isCurrent(cached: CachedValue<T>): boolean {
    if (cached.version === changeLog.version) return true;
    const { versioned } = cached;
    if (!changeLog.isCurrent(versioned)) {
      memory.delete(cached.id);
      return false;
    }
    cached.version = changeLog.version;
    if (includes(changeLog.present, versioned.snapshot))
      cached.versioned = { ...versioned, snapshot: changeLog.present };
    return true;
  }

  /** Transaction ids of one timeline mean nothing on another, so no value survives a new timeline. */
  function clearOnNewTimeline(): void {
    if (timeline === changeLog.timeline) return;
    memory.clear();
    timeline = changeLog.timeline;
  }

  function peek(id: string): T | undefined {
    clearOnNewTimeline();
    const cached = memory.get(id);
    return cached !== undefined && isCurrent(cached) ? cached.versioned.value : undefined;
  }

  function put(id: string, versioned: Versioned<T>): boolean {
    if (!changeLog.isCurrent(versioned)) return false;
    const cached = memory.peek(id);
    if (cached !== undefined && includes(cached.versioned.snapshot, versioned.snapshot)) return false;
    memory.set(id, { id, versioned, version: changeLog.version }, { size: overheadBytes + sizeOf(versioned) });
    return cached?.versioned.value !== versioned.value;
  }

  function confirm(): void {
    clearOnNewTimeline();
    const share = ((changeLog.appended - appendedAtConfirm) * confirmationsPerWindow) / changeLog.capacity;
    appendedAtConfirm = changeLog.appended;
    for (let left = Math.ceil(share * memory.size); left > 0; left--) {
      const cached = nextToConfirm;
      // The iterator advances before the value is checked: lru-cache reuses the index of a deleted entry for the next
      // one, which is the most recent. An iterator at that index is at its end, starts over, and never reaches the
      // entries behind it.
      const next = iterator.next();
      nextToConfirm = next.done ? undefined : next.value;
      if (next.done) iterator = memory.rvalues();
      if (cached !== undefined) isCurrent(cached);
    }
  }

  function publish(id: string, versioned: Versioned<T>): void {
    const entry = codec.sign(id, versioned);
    if (entry.length <= maxEntryLength) void cache.set(codec.keyOf(id), entry, redisLifetimeMs);
  }

  /**
   * Writes a current entry again, as of the present. The entry of a key contains the state of its workspace, too, so
   * the row of the workspace must also be unchanged.
   */
  function refreshEntry(id: string, versioned: Versioned<T>): void {
    const dependsOn = [...versioned.dependsOn, versioned.workspaceId];
    if (changeLog.isCurrent({ ...versioned, dependsOn })) publish(id, { ...versioned, snapshot: changeLog.present });
  }

  /**
   * Redis is not trusted: an entry is used only if `present` includes its snapshot and no known change is missing in
   * it.
   */
  async function readRedis(id: string, call: Call | undefined): Promise<Versioned<T> | undefined> {
    const entry = codec.verify(id, await cache.get(codec.keyOf(id), call?.span));
    if (entry === undefined) return undefined;
    if (!includes(changeLog.present, entry.snapshot) || !changeLog.isCurrent(entry)) return undefined;
    lookups.redis += 1;
    if (changeLog.isAging(entry.snapshot)) refreshEntry(id, entry);
    return entry;
  }

  async function readPostgres(id: string, call: Call | undefined): Promise<Versioned<T> | undefined> {
    const { timeline: readIn } = changeLog;
    const versioned = await read(id, call);
    if (readIn !== changeLog.timeline) return readPostgres(id, call); // its snapshot may be of either timeline
    lookups.postgres += 1;
    // Not awaited: a slow Redis delays a call only once, when it is read.
    if (versioned) publish(id, versioned);
    return versioned;
  }

  /** Concurrent calls for the same value share one fetch. */
  function fetchOnce(
    id: string,
    from: "redis" | "postgres",
    call: Call | undefined,
  ): Promise<Versioned<T> | undefined> {
    if (inFlight.size >= maxInFlight) throw serviceUnavailable(new Error("too many cache lookups are in flight"));
    const fetch = async () => (from === "redis" && (await readRedis(id, call))) || (await readPostgres(id, call));
    const fetching = limitFetch(id, fetch)
      .then((versioned) => {
        if (versioned) put(id, versioned);
        if (versioned) onLoad?.(versioned);
        return versioned;
      })
      .finally(() => inFlight.delete(id));
    inFlight.set(id, fetching);
    return fetching;
  }

  return {
    lookups,
    peek,
    put,
    publish,
    confirm,
    async load(id, from, call) {
      for (let fetches = 0; fetches < maxFetches; fetches++) {
        // Another call may have begun this fetch before the present call did. Its result may be too old.
        const joined = inFlight.get(id);
        const versioned = await (joined ?? fetchOnce(id, from, call));
        if (versioned === undefined && (joined === undefined || fetches > 0)) return undefined;
        if (versioned !== undefined && changeLog.isCurrent(versioned)) return versioned.value;
      }
      throw serviceUnavailable(new Error("PostgreSQL returned only values older than the known changes"));
    },
  };
}
