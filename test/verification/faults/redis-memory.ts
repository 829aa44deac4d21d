import type { Redis } from "ioredis";
import type { Random } from "./random.js";

/** An earlier version of an entry, byte for byte. */
interface EntryVersion {
  readonly name: string;
  readonly at: number;
  readonly text: string;
}

/** Records earlier contents of Redis, so that a fault can bring them back. */
export interface RedisRecorder {
  /** Records all entries. To be called often. Does nothing if Redis does not respond. */
  record(from: Redis): Promise<void>;
  /** Writes the entries of that moment to another Redis. */
  restoreAt(at: number, to: Redis): Promise<void>;
  /** Overwrites each entry that has changed with one of its earlier versions. */
  replay(to: Redis, random: Random): Promise<void>;
}

const maxVersions = 8;

/** Entries that have not changed for longer belong to subjects that are no longer checked. */
const retentionMs = 20_000;
const ttlMs = 600_000;

export function createRedisRecorder(): RedisRecorder {
  const versions = new Map<string, EntryVersion[]>();

  return {
    async record(from) {
      try {
        const names = await from.keys("*");
        const texts = names.length === 0 ? [] : await from.mget(names);
        const at = performance.now();
        for (const [index, name] of names.entries()) {
          const text = texts[index];
          if (typeof text !== "string") continue; // deleted meanwhile
          const past = versions.get(name) ?? [];
          if (past.at(-1)?.text !== text) versions.set(name, [...past, { name, at, text }].slice(-maxVersions));
        }
        for (const [name, past] of versions) if ((past.at(-1)?.at ?? 0) < at - retentionMs) versions.delete(name);
      } catch {
        // Redis is frozen, killed or restarted. The next call records its entries.
      }
    },

    async restoreAt(at, to) {
      const entries = [...versions.values()].map((past) => past.findLast((entry) => entry.at <= at));
      await write(to, entries);
    },

    async replay(to, random) {
      const changed = [...versions.values()].filter((past) => past.length > 1);
      await write(
        to,
        changed.map((past) => random.pick(past.slice(0, -1))),
      );
    },
  };
}

async function write(to: Redis, entries: readonly (EntryVersion | undefined)[]): Promise<void> {
  const pipeline = to.pipeline();
  for (const entry of entries) if (entry !== undefined) pipeline.set(entry.name, entry.text, "PX", ttlMs);
  await pipeline.exec().catch(() => {}); // Redis is frozen, killed or restarted
}
