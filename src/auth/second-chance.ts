// By hand: lru-cache moves an entry to the front of its list at each use, which touches more cache lines of a large cache, and
// its entries cannot be walked through in parts while it is in use. Decision 29 has the figures.

/** What a cache keeps of each entry. */
export interface Cached {
  readonly id: string;
  /** How much it counts for. */
  readonly size: number;
  /** Whether it was used since it came, or was last spared. */
  used: boolean;
}

/**
 * A cache that evicts what was not used for long: the oldest entry goes, unless it was used since it came, or since it was
 * last spared; then it begins anew. A use costs one write.
 */
export interface SecondChanceCache<T extends Cached> {
  readonly count: number;
  /** Counts as a use. */
  get(id: string): T | undefined;
  peek(id: string): T | undefined;
  set(entry: T): void;
  delete(id: string): void;
  clear(): void;
  /** The next entries of a walk through all of them, which begins anew at its end. */
  next(count: number): Iterable<T>;
}

/** So many entries in a row are spared; the next goes in any case, so that no single call pays for a walk through all. */
const mostSpared = 64;

/** @param capacity the sum of the sizes that it keeps */
export function createSecondChanceCache<T extends Cached>(capacity: number): SecondChanceCache<T> {
  /** In the order in which they came, or were spared. */
  const entries = new Map<string, T>();
  let size = 0;
  // An iterator of a Map goes on where it is, whatever is added or deleted meanwhile. One that begins anew would pass by
  // all that was deleted at the beginning.
  let oldest = entries.values();
  let walk = entries.values();

  function remove(entry: T): void {
    entries.delete(entry.id);
    size -= entry.size;
  }

  function evict(): void {
    for (let spared = 0; ; ) {
      const { value: entry, done } = oldest.next();
      if (done) {
        oldest = entries.values();
      } else if (entry.used && spared < mostSpared) {
        entry.used = false;
        entries.delete(entry.id);
        entries.set(entry.id, entry);
        spared += 1;
      } else {
        remove(entry);
        return;
      }
    }
  }

  return {
    get count() {
      return entries.size;
    },
    get(id) {
      const entry = entries.get(id);
      if (entry !== undefined) entry.used = true;
      return entry;
    },
    peek: (id) => entries.get(id),
    set(entry) {
      const before = entries.get(entry.id);
      if (before !== undefined) remove(before);
      if (entry.size > capacity) return;
      entries.set(entry.id, entry);
      size += entry.size;
      while (size > capacity) evict();
    },
    delete(id) {
      const entry = entries.get(id);
      if (entry !== undefined) remove(entry);
    },
    clear() {
      entries.clear();
      size = 0;
    },
    *next(count) {
      for (let visited = 0; visited < count && entries.size > 0; visited++) {
        const { value: entry, done } = walk.next();
        if (!done) yield entry;
        else walk = entries.values();
      }
    },
  };
}
