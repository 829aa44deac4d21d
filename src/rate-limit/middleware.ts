import { LRUCache } from "lru-cache";
import type { Authenticate } from "../auth/authenticate.js";
import type { Call } from "../call/call.js";
import type { KeyCaller } from "../call/context.js";
import { chain, type MaybePromise } from "../call/maybe-promise.js";
import { rateLimited } from "../errors.js";
import type { Log } from "../observe/log.js";
import type { RateLimit, RequestCounter } from "./counter.js";

/** How many workspaces above their limit are remembered. For others, Redis is asked again. */
const maxExhausted = 10_000;

/**
 * Counts a call as soon as its key is accepted, before its scope and its body are checked, because refused calls also
 * cost something. Calls of the operator and calls with an invalid credential are not counted.
 */
export function withRateLimit(
  authenticate: Authenticate,
  limit: RateLimit,
  counter: RequestCounter,
  log: Log,
): Authenticate {
  const { requests, windowSeconds } = limit;
  const policy = `"workspace";q=${requests};w=${windowSeconds}`;
  /** Workspaces above their limit. Their calls are refused until the window ends without a call to Redis. */
  const exhausted = new LRUCache<string, true>({ max: maxExhausted });

  return (call, authorization) =>
    chain(authenticate(call, authorization), (caller) => (caller.kind === "key" ? countCall(call, caller) : caller));

  function countCall(call: Call, caller: KeyCaller): MaybePromise<KeyCaller> {
    const { workspaceId } = caller;
    const exhaustedMs = exhausted.getRemainingTTL(workspaceId);
    if (exhaustedMs > 0) throw refuse(call, exhaustedMs);
    return counter.count(workspaceId, call.span).then(({ used, msLeft }) => {
      if (used <= requests) {
        setHeaders(call, requests - used, msLeft);
        return caller;
      }
      exhausted.set(workspaceId, true, { ttl: msLeft });
      // Logged once per window: exactly one call is the first above the limit.
      if (used === requests + 1) log.info({ workspaceId }, "rate limit of a workspace reached");
      throw refuse(call, msLeft);
    });
  }

  function refuse(call: Call, msLeft: number) {
    setHeaders(call, 0, msLeft);
    return rateLimited(requests, windowSeconds, msLeft);
  }

  /** The headers of the IETF draft on RateLimit fields: the remaining requests, and the remaining seconds. */
  function setHeaders(call: Call, remaining: number, msLeft: number): void {
    const secondsLeft = Math.ceil(msLeft / 1_000);
    call.responseHeaders = { "ratelimit-policy": policy, ratelimit: `"workspace";r=${remaining};t=${secondsLeft}` };
  }
}
