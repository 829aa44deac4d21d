import { type IdentitiesService, UpdateIdentityRequestSchema } from "../../gen/latchkey/v1/identities_service_pb.js";
import { authorOf, callingKey, type Handlers } from "../call/context.js";
import { changedFields } from "../call/update-mask.js";
import { identityAlreadyExists, identityNotFound } from "../errors.js";
import { mintId } from "../ids.js";
import { readPage, writePage } from "../pagination.js";
import type { Holdings } from "../revocation/key-cache.js";
import { toIdentity, toReference } from "./convert.js";
import type { IdentitiesStore } from "./store.js";

/** The identities of the caller's workspace. */
export function createIdentitiesService(store: IdentitiesStore, holdings: Holdings) {
  return {
    async createIdentity({ externalId, meta = {} }, context) {
      const { workspaceId } = callingKey(context);
      const identityId = mintId("id");
      const answer = { identityId };
      const history = holdings.knownHistory();
      const added = await store.insertIdentity(
        context.call,
        { identityId, workspaceId, externalId, meta },
        authorOf(context),
        context.keep?.(answer),
      );
      if (!added) {
        // A client that retries after an unknown outcome concludes from this that its first attempt has created the identity.
        await holdings.durable(context.call, history);
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
      const page = readPage("identities", request);
      const found = await store.listIdentities(context.call, workspaceId, request.search, page);
      const { rows, pagination } = writePage("identities", page, found.rows, (row) => row.identityId, found.scannedTo);
      return { identities: rows.map(toIdentity), pagination };
    },

    async updateIdentity(request, context) {
      const { workspaceId } = callingKey(context);
      const reference = toReference(request);
      const history = holdings.knownHistory();
      const isChange = changedFields(UpdateIdentityRequestSchema, request).has("meta");
      const row = isChange
        ? await store.updateMeta(context.call, workspaceId, reference, request.meta ?? {}, authorOf(context))
        : await store.findIdentity(context.call, workspaceId, reference);
      if (row === undefined) throw identityNotFound();
      await (isChange ? holdings.changed() : holdings.settled(context.call, history));
      return { identity: toIdentity(row) };
    },

    async deleteIdentity(request, context) {
      const { workspaceId } = callingKey(context);
      const history = holdings.knownHistory();
      const deleted = await store.deleteIdentity(context.call, workspaceId, toReference(request), authorOf(context));
      await (deleted ? holdings.changed() : holdings.settled(context.call, history));
      if (!deleted) throw identityNotFound();
      return {};
    },
  } satisfies Handlers<typeof IdentitiesService>;
}
