import type { Redis } from "ioredis";
import type { Random } from "./random.js";

/** An entry as it once was, byte for byte. */
interface PastEntry {
  readonly name: string;
  readonly at: number;
  readonly text: string;
}

/** Remembers what Redis once held, so that it can come back when it should not. */
export interface RedisMemory {
  /** Looks at all entries; to be called often. A Redis that does not answer is passed by. */
  look(from: Redis): Promise<void>;
  /** Writes the entries as they were at that moment into another Redis. */
  restoreAsOf(at: number, to: Redis): Promise<void>;
  /** Writes, for each entry that has changed, one of its earlier forms over the present one. */
  replay(to: Redis, random: Random): Promise<void>;
}

const formsKept = 8;

/** Entries that have not changed for so long belong to nobody who is still watched. */
const memoryMs = 20_000;
const lifetimeMs = 600_000;

export function createRedisMemory(): RedisMemory {
  const forms = new Map<string, PastEntry[]>();

  return {
    async look(from) {
      try {
        const names = await from.keys("*");
        const texts = names.length === 0 ? [] : await from.mget(names);
        const at = performance.now();
        for (const [index, name] of names.entries()) {
          const text = texts[index];
          if (typeof text !== "string") continue; // gone since
          const past = forms.get(name) ?? [];
          if (past.at(-1)?.text !== text) forms.set(name, [...past, { name, at, text }].slice(-formsKept));
        }
        for (const [name, past] of forms) if ((past.at(-1)?.at ?? 0) < at - memoryMs) forms.delete(name);
      } catch {
        // Frozen, killed or restarted just now; the next look sees more.
      }
    },

    async restoreAsOf(at, to) {
      const entries = [...forms.values()].map((past) => past.findLast((entry) => entry.at <= at));
      await write(to, entries);
    },

    async replay(to, random) {
      const changed = [...forms.values()].filter((past) => past.length > 1);
      await write(
        to,
        changed.map((past) => random.pick(past.slice(0, -1))),
      );
    },
  };
}

async function write(to: Redis, entries: readonly (PastEntry | undefined)[]): Promise<void> {
  const pipeline = to.pipeline();
  for (const entry of entries) if (entry !== undefined) pipeline.set(entry.name, entry.text, "PX", lifetimeMs);
  await pipeline.exec().catch(() => {}); // frozen, killed or restarted just now
}
