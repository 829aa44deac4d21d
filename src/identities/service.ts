import { type IdentitiesService, UpdateIdentityRequestSchema } from "../../gen/latchkey/v1/identities_service_pb.js";
import { actorOf, callingKey, type Handlers } from "../call/context.js";
import { changedFields } from "../call/update-mask.js";
import { identityAlreadyExists, identityNotFound } from "../errors.js";
import { mintId } from "../ids.js";
import { buildPage, parsePageRequest } from "../pagination.js";
import type { KeyCache } from "../revocation/key-cache.js";
import { toIdentity, toReference } from "./convert.js";
import type { IdentitiesStore } from "./store.js";

/** The identities of the caller's workspace. */
export function createIdentitiesService(store: IdentitiesStore, holdings: KeyCache) {
  return {
    async createIdentity({ externalId, meta = {} }, context) {
      const { workspaceId } = callingKey(context);
      const identityId = mintId("id");
      const answer = { identityId };
      const history = holdings.knownTimeline();
      const added = await store.insertIdentity(
        context.call,
        { identityId, workspaceId, externalId, meta },
        actorOf(context),
        context.record?.(answer),
      );
      if (!added) {
        // A client that retries after an unknown outcome concludes from this that its first attempt has created the identity.
        await holdings.awaitDurability(context.call, history);
        throw identityAlreadyExists();
      }
      return answer;
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
      const history = holdings.knownTimeline();
      const isChange = changedFields(UpdateIdentityRequestSchema, request).has("meta");
      const row = isChange
        ? await store.updateMeta(context.call, workspaceId, reference, request.meta ?? {}, actorOf(context))
        : await store.findIdentity(context.call, workspaceId, reference);
      if (row === undefined) throw identityNotFound();
      await (isChange ? holdings.awaitPropagation() : holdings.awaitEarlierChanges(context.call, history));
      return { identity: toIdentity(row) };
    },

    async deleteIdentity(request, context) {
      const { workspaceId } = callingKey(context);
      const history = holdings.knownTimeline();
      const deleted = await store.deleteIdentity(context.call, workspaceId, toReference(request), actorOf(context));
      await (deleted ? holdings.awaitPropagation() : holdings.awaitEarlierChanges(context.call, history));
      if (!deleted) throw identityNotFound();
      return {};
    },
  } satisfies Handlers<typeof IdentitiesService>;
}
