import type { IdentitiesService } from "../../gen/latchkey/v1/identities_service_pb.js";
import { actorOf, callingKey, type Handlers } from "../call/context.js";
import { identityAlreadyExists, identityNotFound } from "../errors.js";
import { mintId } from "../ids.js";
import { buildPage, parsePageRequest } from "../pagination.js";
import type { KeyCache } from "../revocation/key-cache.js";
import { toPeriod, toUsage } from "../usage/convert.js";
import type { UsageStore } from "../usage/store.js";
import { fromRateLimits, toChanges, toIdentity, toReference } from "./convert.js";
import type { IdentitiesStore } from "./store.js";

/** The identities of the caller's workspace. */
export function createIdentitiesService(
  store: IdentitiesStore,
  keyCache: KeyCache,
  usage: Pick<UsageStore, "readUsage">,
) {
  return {
    async createIdentity({ externalId, meta = {}, ratelimits }, context) {
      const { workspaceId } = callingKey(context);
      const identityId = mintId("id");
      const response = { identityId };
      const timeline = keyCache.knownTimeline();
      const inserted = await store.insertIdentity(
        context.call,
        { identityId, workspaceId, externalId, meta, ratelimits: fromRateLimits(ratelimits) },
        actorOf(context),
        context.record?.(response),
      );
      if (!inserted) {
        // After an unknown outcome, a retrying client concludes from this error that its first attempt succeeded.
        await keyCache.awaitDurability(context.call, timeline);
        throw identityAlreadyExists();
      }
      return response;
    },

    async getIdentity(request, context) {
      const { workspaceId } = callingKey(context);
      const row = await store.findIdentity(context.call, workspaceId, toReference(request));
      if (row === undefined) throw identityNotFound();
      return { identity: toIdentity(row) };
    },

    async listIdentities(request, context) {
      const { workspaceId } = callingKey(context);
      const page = parsePageRequest("identities", request);
      const found = await store.listIdentities(context.call, workspaceId, request.search, page);
      const { rows, pagination } = buildPage("identities", page, found.rows, (row) => row.identityId, found.scannedTo);
      return { identities: rows.map(toIdentity), pagination };
    },

    async updateIdentity(request, context) {
      const { workspaceId } = callingKey(context);
      const reference = toReference(request);
      const timeline = keyCache.knownTimeline();
      const changes = toChanges(request);
      const isChange = Object.keys(changes).length > 0;
      const row = isChange
        ? await store.updateIdentity(context.call, workspaceId, reference, changes, actorOf(context))
        : await store.findIdentity(context.call, workspaceId, reference);
      if (row === undefined) throw identityNotFound();
      await (isChange ? keyCache.awaitPropagation() : keyCache.awaitEarlierChanges(context.call, timeline));
      return { identity: toIdentity(row) };
    },

    async getIdentityUsage(request, context) {
      const { workspaceId } = callingKey(context);
      const period = toPeriod(request.period);
      const identity = await store.findIdentity(context.call, workspaceId, toReference(request));
      if (identity === undefined) throw identityNotFound();
      const rows = await usage.readUsage(context.call, workspaceId, identity.identityId, period, request.tag ?? "");
      return { usage: rows.map(toUsage) };
    },

    async deleteIdentity(request, context) {
      const { workspaceId } = callingKey(context);
      const timeline = keyCache.knownTimeline();
      const deleted = await store.deleteIdentity(context.call, workspaceId, toReference(request), actorOf(context));
      await (deleted ? keyCache.awaitPropagation() : keyCache.awaitEarlierChanges(context.call, timeline));
      if (!deleted) throw identityNotFound();
      return {};
    },
  } satisfies Handlers<typeof IdentitiesService>;
}
