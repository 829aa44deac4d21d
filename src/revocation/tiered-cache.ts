import { LRUCache } from "lru-cache";
import type { Call } from "../call/call.js";
import { serviceUnavailable } from "../errors.js";
import type { Cache } from "../storage/redis/client.js";
import type { ChangeLog, Versioned } from "./change-log.js";
import type { EntryCodec } from "./signed-entry.js";
import { includes } from "./snapshot.js";

/** Facts of one kind: some held in this process, more of them in Redis, all of them in Postgres. */
export interface TieredCache<T> {
  /** How often something was found where; that it was held is counted by who uses it. */
  readonly lookups: Record<"memory" | "redis" | "postgres", number>;
  /** What is held, unless a known change is missing in it. */
  peek(id: string): T | undefined;
  /** Undefined if there is no such thing; throws when nobody can be asked. */
  load(id: string, from: "redis" | "postgres", call?: Call): Promise<T | undefined>;
  /** Holds a fact that came along with another, unless a known change is missing in it. True if it is news. */
  put(id: string, fact: Versioned<T>): boolean;
  /** Puts a fact into Redis as a courtesy to other replicas, on which nothing rests. */
  publish(id: string, fact: Versioned<T>): void;
  /** To be called when changes were learnt: confirms a part of what is held, all of it before the changes are forgotten. */
  confirm(): void;
}

export interface TieredCacheOptions<T> {
  readonly form: EntryCodec<T>;
  readonly changes: ChangeLog;
  readonly cache: Cache;
  readonly read: (id: string, call?: Call) => Promise<Versioned<T> | undefined>;
  /** Told of each fact that was read from Postgres or Redis. */
  readonly onLoad?: (fact: Versioned<T>) => void;
  /** How much is held, in bytes of heap. */
  readonly capacity: number;
  /** How many bytes a fact takes, and what is made of it for as long as it is held. */
  readonly sizeOf: (fact: Versioned<T>) => number;
}

/** How long an entry in Redis may help. Long, because the fence and not the lifetime keeps old ones from being used. */
const lifetimeMs = 10 * 60_000;

/** What a held fact costs beside itself, in bytes: its id, and its place in the cache. */
const overhead = 220;

/** How many different facts may be fetched at a time: Postgres has a second or two of work with them. */
const mostUnderWay = 10_000;

/** How often a fact is fetched again that a change has overtaken on its way. */
const mostFetches = 5;

/** How often everything that is held is confirmed before the changes since are forgotten. */
const confirmationsPerWindow = 3;

interface Holding<T> {
  readonly id: string;
  fact: Versioned<T>;
  /** Of the changes, when it was last looked whether one is missing in the fact. */
  version: number;
}

export function createTieredCache<T>({
  form,
  changes,
  cache,
  read,
  onLoad: onArrival,
  capacity,
  sizeOf: weigh,
}: TieredCacheOptions<T>): TieredCache<T> {
  const holdings = new LRUCache<string, Holding<T>>({ maxSize: capacity });
  /** Goes through all that is held, the longest unused first. */
  let walk = holdings.rvalues();
  let upNext: Holding<T> | undefined;
  const underWay = new Map<string, Promise<Versioned<T> | undefined>>();
  const lookups = { memory: 0, redis: 0, postgres: 0 };
  let { timeline: history, appended: learnt } = changes;

  /** Whether no known change is missing in it; then it is as good as read at present. If one is, it is dropped. */
  function isCurrent(holding: Holding<T>): boolean {
    if (holding.version === changes.version) return true;
    const { fact } = holding;
    if (!changes.isCurrent(fact)) {
      holdings.delete(holding.id);
      return false;
    }
    holding.version = changes.version;
    if (includes(changes.present, fact.snapshot)) holding.fact = { ...fact, snapshot: changes.present };
    return true;
  }

  function dropOtherHistories(): void {
    if (history === changes.timeline) return;
    holdings.clear();
    history = changes.timeline;
  }

  function held(id: string): T | undefined {
    dropOtherHistories();
    const holding = holdings.get(id);
    return holding !== undefined && isCurrent(holding) ? holding.fact.value : undefined;
  }

  function hold(id: string, fact: Versioned<T>): boolean {
    if (!changes.isCurrent(fact)) return false;
    const known = holdings.peek(id);
    if (known !== undefined && includes(known.fact.snapshot, fact.snapshot)) return false;
    holdings.set(id, { id, fact, version: changes.version }, { size: overhead + weigh(fact) });
    return known?.fact.value !== fact.value;
  }

  function confirm(): void {
    dropOtherHistories();
    const share = ((changes.appended - learnt) * confirmationsPerWindow) / changes.capacity;
    learnt = changes.appended;
    for (let left = Math.ceil(share * holdings.size); left > 0; left--) {
      const holding = upNext;
      // The iterator moves on before the fact is checked: lru-cache reuses the index of a deleted entry for the next one, which
      // is the most recent. An iterator that rests there is at its end, starts over, and never reaches the entries behind.
      const next = walk.next();
      upNext = next.done ? undefined : next.value;
      if (next.done) walk = holdings.rvalues();
      if (holding !== undefined) isCurrent(holding);
    }
  }

  function share(id: string, fact: Versioned<T>): void {
    void cache.set(form.keyOf(id), form.sign(id, fact), lifetimeMs);
  }

  /** An entry that is still good is written again as of the present: a key with the state of its workspace, if that is, too. */
  function shareAgain(id: string, fact: Versioned<T>): void {
    const rows = [...fact.dependsOn, fact.workspaceId];
    if (changes.isCurrent({ ...fact, dependsOn: rows })) share(id, { ...fact, snapshot: changes.present });
  }

  /** Redis is not trusted: an entry counts only if it lies within what is known here, and no change is missing in it. */
  async function readRedis(id: string, call: Call | undefined): Promise<Versioned<T> | undefined> {
    const fact = form.verify(id, await cache.get(form.keyOf(id), call?.span));
    if (fact === undefined || !includes(changes.present, fact.snapshot) || !changes.isCurrent(fact)) return undefined;
    lookups.redis += 1;
    if (changes.isAging(fact.snapshot)) shareAgain(id, fact);
    return fact;
  }

  async function readPostgres(id: string, call: Call | undefined): Promise<Versioned<T> | undefined> {
    const { timeline: readIn } = changes;
    const fact = await read(id, call);
    if (readIn !== changes.timeline) return readPostgres(id, call); // its snapshot may be of either
    lookups.postgres += 1;
    // Not waited for: a cache that is slow costs a caller its time once, at the reading.
    if (fact) share(id, fact);
    return fact;
  }

  /** Callers who want the same at the same time share one fetch. */
  function fetchOnce(
    id: string,
    from: "redis" | "postgres",
    call: Call | undefined,
  ): Promise<Versioned<T> | undefined> {
    if (underWay.size >= mostUnderWay) throw serviceUnavailable(new Error("too much is being fetched already"));
    const fetching = (async () => (from === "redis" && (await readRedis(id, call))) || (await readPostgres(id, call)))()
      .then((fact) => {
        if (fact) hold(id, fact);
        if (fact) onArrival?.(fact);
        return fact;
      })
      .finally(() => underWay.delete(id));
    underWay.set(id, fetching);
    return fetching;
  }

  return {
    lookups,
    peek: held,
    put: hold,
    publish: share,
    confirm,
    async load(id, from, call) {
      for (let fetches = 0; fetches < mostFetches; fetches++) {
        // The first fetch may have been begun by somebody else, before this call: what it brings may be too old.
        const joined = underWay.get(id);
        const fact = await (joined ?? fetchOnce(id, from, call));
        if (fact === undefined && (joined === undefined || fetches > 0)) return undefined;
        if (fact !== undefined && changes.isCurrent(fact)) return fact.value;
      }
      throw serviceUnavailable(new Error("what Postgres answers is older than the changes known here"));
    },
  };
}
