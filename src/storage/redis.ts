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

  let reachable = true;
  let closing = false;
  redis.on("ready", () => {
    if (!reachable) log.info("Redis is back");
    reachable = true;
  });
  redis.on("error", (error: Error) => {
    // The message only: ioredis errors carry the command's arguments.
    if (reachable && !closing)
      log.warn({ reason: error.message }, "Redis is out of reach; answering from Postgres alone");
    reachable = false;
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
      closing = true;
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
