import type { Span } from "@opentelemetry/api";
import { RateLimiterMemory, RateLimiterRedis, RateLimiterRes } from "rate-limiter-flexible";
import type { RateLimit } from "../config.js";
import type { RedisCache } from "../storage/redis.js";

/** How a workspace stands in its window. */
export interface Count {
  /** How many requests were made in it, this one included. */
  readonly used: number;
  /** How long it lasts still. */
  readonly msLeft: number;
}

/** Counts the requests of workspaces, each in a window that begins with its first one. */
export interface Windows {
  /** @param span of the call that is counted */
  count(workspaceId: string, span?: Span): Promise<Count>;
}

/**
 * Counts for all replicas together, in Redis; while that is passed by, or if there is none, for this process alone. So
 * counting never fails. One name in Redis for each workspace, so that a cluster can have it.
 */
export function createWindows({ requests, windowSeconds }: RateLimit, redis: RedisCache | undefined): Windows {
  // With another length, other windows: those of before would end too late.
  const keyPrefix = `latchkey:rate:${windowSeconds}`;
  const terms = { points: requests, duration: windowSeconds, keyPrefix };
  const shared = redis && new RateLimiterRedis({ ...terms, storeClient: redis.client });
  const own = new RateLimiterMemory(terms);

  return {
    async count(workspaceId, span) {
      const told = shared && (await redis.ask("EVALSHA", () => countIn(shared, workspaceId), span));
      return told ?? countIn(own, workspaceId);
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
