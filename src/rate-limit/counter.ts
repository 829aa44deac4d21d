import type { Span } from "@opentelemetry/api";
import { LRUCache } from "lru-cache";
import { RateLimiterMemory, RateLimiterRedis, RateLimiterRes } from "rate-limiter-flexible";
import type { RedisCache } from "../storage/redis/client.js";

/** How many requests all keys of a workspace may make together, in a window of so many seconds. */
export interface RateLimit {
  readonly requests: number;
  readonly windowSeconds: number;
}

/** How a workspace stands in its window. */
export interface Count {
  /** How many requests were made in it, this one included. */
  readonly used: number;
  /** How long it lasts still. */
  readonly msLeft: number;
}

/** Counts the requests of workspaces, each in a window that begins with its first one. */
export interface RequestCounter {
  /** @param span of the call that is counted */
  count(workspaceId: string, span?: Span): Promise<Count>;
}

/** For how long nobody waits for Redis again to count a workspace, when it has not done so in time; and for how many. */
const pause = { ttl: 1_000, max: 10_000 };

/**
 * Counts for all replicas together, in Redis; while that is passed by, or if there is none, for this process alone. So
 * counting never fails. One name in Redis for each workspace, so that a cluster can have it.
 */
export function createRequestCounter(
  { requests, windowSeconds }: RateLimit,
  redis: RedisCache | undefined,
): RequestCounter {
  // With another length, other windows: those of before would end too late.
  const keyPrefix = `latchkey:rate:${windowSeconds}`;
  const terms = { points: requests, duration: windowSeconds, keyPrefix };
  const shared = redis && new RateLimiterRedis({ ...terms, storeClient: redis.client });
  const own = new RateLimiterMemory(terms);
  // The breaker sees to a Redis that hangs, but not to one node of a cluster: the others answer.
  const unanswered = new LRUCache<string, true>(pause);

  return {
    async count(workspaceId, span) {
      if (shared && redis.inUse && !unanswered.has(workspaceId)) {
        const told = await redis.store("EVALSHA", () => countIn(shared, workspaceId), span);
        if (told !== undefined) return told;
        unanswered.set(workspaceId, true);
      }
      return countIn(own, workspaceId);
    },
  };
}

/** What is above the limit is thrown by the library. For us it is an answer: Redis has not failed. */
async function countIn(limiter: RateLimiterRedis | RateLimiterMemory, workspaceId: string): Promise<Count> {
  const answer = await limiter.consume(workspaceId).catch((thrown: unknown) => {
    if (thrown instanceof RateLimiterRes) return thrown;
    throw thrown;
  });
  // In its last moment a window has 0 ms left, which others take for no end at all.
  return { used: answer.consumedPoints, msLeft: Math.max(1, answer.msBeforeNext) };
}
