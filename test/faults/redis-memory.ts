import type { Redis } from "ioredis";
import type { Random } from "./random.js";

/** An entry as it once was, in the server's own form, so that entries of any type can be brought back. */
interface PastEntry {
  readonly name: string;
  readonly at: number;
  readonly dump: Buffer;
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
const lifetimeMs = 600_000;

export function createRedisMemory(): RedisMemory {
  const forms = new Map<string, PastEntry[]>();

  return {
    async look(from) {
      try {
        const names = await from.keys("*");
        const dumps = await Promise.all(names.map((name) => from.dumpBuffer(name)));
        const at = performance.now();
        for (const [index, name] of names.entries()) {
          const dump = dumps[index];
          if (!dump) continue; // gone since
          const past = forms.get(name) ?? [];
          if (past.at(-1)?.dump.equals(dump)) continue;
          forms.set(name, [...past, { name, at, dump }].slice(-formsKept));
        }
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
  const written = entries
    .filter((entry) => entry !== undefined)
    .map(({ name, dump }) => to.restore(name, lifetimeMs, dump, "REPLACE").catch(() => {}));
  await Promise.all(written);
}
