import { Redis } from "ioredis";
import type { Log } from "../observe/log.js";

/** A cache that can only help: when Redis is down, slow or odd, reads find nothing and writes do nothing. */
export interface Cache {
  get(key: string): Promise<string | undefined>;
  set(key: string, value: string, lifetimeMs: number): Promise<void>;
  close(): void;
}

/** Connects to Redis in the background. Every command answers or gives up within 50 ms. */
export function connectRedis(url: string, log: Log): Cache {
  const redis = new Redis(url, {
    commandTimeout: 50,
    connectTimeout: 500,
    socketTimeout: 500,
    // A command that cannot be sent now fails now. With the defaults it would wait, and a SET that its caller had long
    // given up on would run later, even on a restarted, empty server.
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    retryStrategy: (attempt) => Math.min(attempt * 20, 500),
  });

  // Said once, and only if it lasts: a connection that is slow to come about is no outage.
  let doubt: NodeJS.Timeout | undefined;
  let said = false;
  redis.on("ready", () => {
    clearTimeout(doubt);
    doubt = undefined;
    if (said) log.info("Redis is back");
    said = false;
  });
  redis.on("error", ({ message: reason }: Error) => {
    doubt ??= setTimeout(() => {
      // The message only: ioredis errors carry the command's arguments.
      log.warn({ reason }, "Redis is out of reach; answering from Postgres alone");
      said = true;
    }, 1_000).unref();
  });

  return {
    async get(key) {
      const value = await redis.get(key).catch(() => null);
      return value ?? undefined;
    },
    async set(key, value, lifetimeMs) {
      await redis.set(key, value, "PX", lifetimeMs).catch(() => null);
    },
    close() {
      clearTimeout(doubt);
      redis.removeAllListeners("error").on("error", () => {}); // what happens from now on is our own doing
      redis.disconnect();
    },
  };
}

/** Stands in where no Redis is configured: nothing is ever found. */
export const noCache: Cache = {
  get: async () => undefined,
  set: async () => {},
  close: () => {},
};
