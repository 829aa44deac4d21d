import type { Cache } from "../../../src/storage/redis/client.js";
import type { Dice } from "./dice.js";
import type { Step } from "./time.js";

export interface Redis {
  /** The connection of one replica. */
  connect(replica: string): Cache;
}

/**
 * The worst possible Redis: a read returns anything that was ever written under that name, or nothing. That covers lost
 * and late writes, and servers that are restarted, replaced or unreachable.
 */
export function createRedis(step: Step, dice: Dice): Redis {
  const everWritten = new Map<string, string[]>();

  return {
    connect: (replica) => ({
      inUse: true,
      async get(name) {
        await step(`${replica} reads from Redis`);
        const entries = everWritten.get(name) ?? [];
        return entries[dice.below(entries.length + 1)];
      },
      async set(name, value) {
        const entries = everWritten.get(name);
        if (entries === undefined) everWritten.set(name, [value]);
        else if (!entries.includes(value)) entries.push(value);
      },
      close() {},
    }),
  };
}
