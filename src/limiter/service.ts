import type { RateLimitsService } from "../../gen/latchkey/v1/rate_limits_service_pb.js";
import { type Call, throwIfAborted } from "../call/call.js";
import { actorOf, callingKey, type Handlers } from "../call/context.js";
import { chain, type MaybePromise } from "../call/maybe-promise.js";
import { overrideNotFound } from "../errors.js";
import { buildPage, parsePageRequest } from "../pagination.js";
import type { KeyCache } from "../revocation/key-cache.js";
import { type LimitedUse, refuseDuplicates, toLimitState, toOverride, toUse } from "./convert.js";
import type { CheckResult, CounterState, Counters } from "./counters.js";
import type { Overrides } from "./overrides.js";
import type { OverridesStore } from "./overrides-store.js";

/** Rate limits for identifiers of the user's application. */
export function createRateLimitsService(
  store: OverridesStore,
  overrides: Pick<Overrides, "find">,
  counters: Pick<Counters, "check">,
  keyCache: KeyCache,
) {
  function check(workspaceId: string, uses: readonly LimitedUse[], call: Call): MaybePromise<CheckResult> {
    throwIfAborted(call);
    return counters.check({ workspaceId, hashTag: workspaceId, uses }, call.span);
  }

  return {
    limit(request, context) {
      const { workspaceId } = callingKey(context);
      const found = overrides.find(workspaceId, request.namespace, request.identifier, context.call);
      return chain(found, (override) => {
        const use = toUse(workspaceId, request, override);
        return chain(check(workspaceId, [use], context.call), ({ passed, states: [state], perProcess }) => {
          return { success: passed, ...toLimitState(use, state as CounterState, perProcess) };
        });
      });
    },

    async multiLimit({ limits }, context) {
      const { workspaceId } = callingKey(context);
      refuseDuplicates(limits);
      const uses = await Promise.all(
        limits.map(async (request) => {
          const { namespace, identifier } = request;
          return toUse(workspaceId, request, await overrides.find(workspaceId, namespace, identifier, context.call));
        }),
      );
      const { passed, states, perProcess } = await check(workspaceId, uses, context.call);
      return {
        passed,
        limits: limits.map(({ namespace, identifier }, index) => {
          const state = states[index] as CounterState;
          const use = uses[index] as LimitedUse;
          return { namespace, identifier, passed: !state.exceeded, ...toLimitState(use, state, perProcess) };
        }),
      };
    },

    async setOverride({ namespace, identifier, limit, duration }, context) {
      const { workspaceId } = callingKey(context);
      context.call.revokes = limit === 0n;
      const settings = { limit: Number(limit), duration: Number(duration) };
      const reference = { workspaceId, namespace, identifier };
      // Retries if another call sets the same override for the first time.
      for (;;) {
        const overrideId = await store.setOverride(context.call, reference, settings, actorOf(context));
        if (overrideId === undefined) continue;
        await keyCache.awaitPropagation();
        return { overrideId };
      }
    },

    async getOverride({ namespace, identifier }, context) {
      const { workspaceId } = callingKey(context);
      const row = await store.findOverride(context.call, { workspaceId, namespace, identifier });
      if (row === undefined) throw overrideNotFound();
      return { override: toOverride(row) };
    },

    async listOverrides(request, context) {
      const { workspaceId } = callingKey(context);
      const page = parsePageRequest("overrides", request);
      const found = await store.listOverrides(context.call, workspaceId, request.namespace, page);
      const { rows, pagination } = buildPage("overrides", page, found, (row) => row.overrideId);
      return { overrides: rows.map(toOverride), pagination };
    },

    async deleteOverride({ namespace, identifier }, context) {
      const { workspaceId } = callingKey(context);
      const timeline = keyCache.knownTimeline();
      const reference = { workspaceId, namespace, identifier };
      const deleted = await store.deleteOverride(context.call, reference, actorOf(context));
      // Also if it is already deleted: a retrying client may not know how its first attempt ended.
      await (deleted ? keyCache.awaitPropagation() : keyCache.awaitEarlierChanges(context.call, timeline));
      if (!deleted) throw overrideNotFound();
      return {};
    },
  } satisfies Handlers<typeof RateLimitsService>;
}
