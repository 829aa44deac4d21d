import type { IdentitiesService } from "../../gen/latchkey/v1/identities_service_pb.js";
import { callingKey, type Handlers } from "../auth/principal.js";
import { identityAlreadyExists, identityNotFound } from "../errors.js";
import { mintId } from "../ids.js";
import { readPage, writePage } from "../page.js";
import { toIdentity, toReference } from "./convert.js";
import type { IdentitiesStore } from "./store.js";

/** The identities of the caller's workspace. */
export function createIdentitiesService(store: IdentitiesStore, now: () => Date) {
  return {
    async createIdentity(request, context) {
      const { workspaceId } = callingKey(context);
      const { externalId, meta = {} } = request;
      const identity = { identityId: mintId("id"), workspaceId, externalId, meta, createdAt: now() };
      if (!(await store.insertIdentity(identity))) throw identityAlreadyExists();
      return { identityId: identity.identityId };
    },

    async getIdentity(request, context) {
      const { workspaceId } = callingKey(context);
      const row = await store.findIdentity(workspaceId, toReference(request));
      if (row === undefined) throw identityNotFound();
      return { identity: toIdentity(row) };
    },

    async listIdentities(request, context) {
      const { workspaceId } = callingKey(context);
      const page = readPage("identities", request);
      const found = await store.listIdentities(workspaceId, page);
      const { rows, pagination } = writePage("identities", page, found, (row) => row.identityId);
      return { identities: rows.map(toIdentity), pagination };
    },

    async deleteIdentity(request, context) {
      const { workspaceId } = callingKey(context);
      if (!(await store.deleteIdentity(workspaceId, toReference(request)))) throw identityNotFound();
      return {};
    },
  } satisfies Handlers<typeof IdentitiesService>;
}
