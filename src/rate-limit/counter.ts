import type { Span } from "@opentelemetry/api";
import { LRUCache } from "lru-cache";
import { RateLimiterMemory, RateLimiterRedis, RateLimiterRes } from "rate-limiter-flexible";
import type { RedisCache } from "../storage/redis/client.js";

/** The maximum number of requests of all keys of a workspace together, in one window. */
export interface RateLimit {
  readonly requests: number;
  readonly windowSeconds: number;
}

/** The state of a workspace's window. */
export interface Count {
  /** The requests in the window, this one included. */
  readonly used: number;
  /** The remaining time of the window. */
  readonly msLeft: number;
}

/** Counts the requests of each workspace in a fixed window that begins with its first request. */
export interface RequestCounter {
  /** @param span of the call that is counted */
  count(workspaceId: string, span?: Span): Promise<Count>;
}

/** How long Redis is not used for a workspace after a timeout, and for how many workspaces this is remembered. */
const timeoutCacheOptions = { ttl: 1_000, max: 10_000 };

/**
 * Counts in Redis, for all replicas together. While Redis is bypassed or not configured, counts in the memory of this
 * process, so counting never fails. Each workspace has one Redis key, so that the keys can be spread over a cluster.
 */
export function createRequestCounter(
  { requests, windowSeconds }: RateLimit,
  redis: RedisCache | undefined,
): RequestCounter {
  // The prefix contains the window length. After a change of the length, windows of the old length would end too late.
  const keyPrefix = `latchkey:rate:${windowSeconds}`;
  const options = { points: requests, duration: windowSeconds, keyPrefix };
  const shared = redis && new RateLimiterRedis({ ...options, storeClient: redis.client });
  const local = new RateLimiterMemory(options);
  // The circuit breaker handles a Redis that hangs, but not one that is a node of a cluster: the other nodes answer.
  const timedOut = new LRUCache<string, true>(timeoutCacheOptions);

  return {
    async count(workspaceId, span) {
      if (shared && redis.inUse && !timedOut.has(workspaceId)) {
        const count = await redis.store("EVALSHA", () => countIn(shared, workspaceId), span);
        if (count !== undefined) return count;
        timedOut.set(workspaceId, true);
      }
      return countIn(local, workspaceId);
    },
  };
}

/** The library throws a result above the limit. Here it is a normal result, because Redis has not failed. */
async function countIn(limiter: RateLimiterRedis | RateLimiterMemory, workspaceId: string): Promise<Count> {
  const result = await limiter.consume(workspaceId).catch((thrown: unknown) => {
    if (thrown instanceof RateLimiterRes) return thrown;
    throw thrown;
  });
  // In its last moment a window has 0 ms left, which a TTL of the LRU cache would interpret as no expiry. After a clock was
  // set back, a window would end too late, so it ends now.
  const maxMs = 1_000 * limiter.duration;
  const msLeft = Math.min(Math.max(1, result.msBeforeNext), maxMs);
  if (result.msBeforeNext > maxMs) await limiter.delete(workspaceId);
  return { used: result.consumedPoints, msLeft };
}
