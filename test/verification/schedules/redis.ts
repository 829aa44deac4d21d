import type { Cache } from "../../../src/storage/redis/client.js";
import type { Dice } from "./dice.js";
import type { Step } from "./time.js";

export interface Redis {
  /** The connection of one replica. */
  connect(who: string): Cache;
}

/**
 * The worst Redis there can be: whoever asks gets anything that was ever written under that name, or nothing. So
 * writes need not be lost or late by themselves, nor servers restarted, replaced or cut off.
 */
export function createRedis(step: Step, dice: Dice): Redis {
  const everWritten = new Map<string, string[]>();

  return {
    connect: (who) => ({
      inUse: true,
      async get(name) {
        await step(`${who} hears from Redis`);
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
