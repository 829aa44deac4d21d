import { LRUCache } from "lru-cache";
import type { Authenticate } from "../auth/authenticate.js";
import type { Call } from "../call/call.js";
import type { KeyHolder } from "../call/context.js";
import { chain, type MaybePromise } from "../call/maybe-promise.js";
import { rateLimited } from "../errors.js";
import type { Log } from "../observe/log.js";
import type { RateLimit, RequestCounter } from "./counter.js";

/** Of how many workspaces it is remembered that they have used up their window. Of others, Redis is asked again. */
const mostSpent = 10_000;

/**
 * Counts a call as soon as its key is accepted, before its scope and its body are judged: whatever a key may do, its
 * calls cost something. The operator's are not counted, nor is what is refused for its credential.
 */
export function withRateLimit(
  authenticate: Authenticate,
  limit: RateLimit,
  windows: RequestCounter,
  log: Log,
): Authenticate {
  const { requests, windowSeconds } = limit;
  const policy = `"workspace";q=${requests};w=${windowSeconds}`;
  /** Refused until their window ends, without asking anybody: who asks too often is not to keep Redis busy. */
  const spent = new LRUCache<string, true>({ max: mostSpent });

  return (call, authorization) =>
    chain(authenticate(call, authorization), (caller) => (caller.kind === "key" ? countCall(call, caller) : caller));

  function countCall(call: Call, caller: KeyHolder): MaybePromise<KeyHolder> {
    const { workspaceId } = caller;
    const spentMs = spent.getRemainingTTL(workspaceId);
    if (spentMs > 0) throw refusal(call, spentMs);
    return windows.count(workspaceId, call.span).then(({ used, msLeft }) => {
      if (used <= requests) {
        tell(call, requests - used, msLeft);
        return caller;
      }
      spent.set(workspaceId, true, { ttl: msLeft });
      // Once for each window: only one call is the first too many.
      if (used === requests + 1) log.info({ workspaceId }, "a workspace has used up its requests");
      throw refusal(call, msLeft);
    });
  }

  function refusal(call: Call, msLeft: number) {
    tell(call, 0, msLeft);
    return rateLimited(requests, windowSeconds, msLeft);
  }

  /** In the fields of the IETF's draft on RateLimit headers: how many are left, and for how many seconds more. */
  function tell(call: Call, left: number, msLeft: number): void {
    const secondsLeft = Math.ceil(msLeft / 1_000);
    call.responseHeaders = { "ratelimit-policy": policy, ratelimit: `"workspace";r=${left};t=${secondsLeft}` };
  }
}
