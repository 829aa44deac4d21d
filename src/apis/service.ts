import type { ApisService } from "../../gen/latchkey/v1/apis_service_pb.js";
import { actorOf, callingKey, type Handlers } from "../call/context.js";
import { apiExceedsCaller, apiNotFound, apiOfCaller } from "../errors.js";
import { mintId } from "../ids.js";
import { buildPage, parsePageRequest } from "../pagination.js";
import type { KeyCache } from "../revocation/key-cache.js";
import { toApi } from "./convert.js";
import type { ApisStore } from "./store.js";

/** The APIs of the caller's workspace. */
export function createApisService(store: ApisStore, keyCache: KeyCache) {
  return {
    async createApi({ name }, context) {
      const { workspaceId } = callingKey(context);
      const response = { apiId: mintId("api") };
      const api = { ...response, workspaceId, name };
      await store.insertApi(context.call, api, actorOf(context), context.record?.(response));
      return response;
    },

    async getApi({ apiId }, context) {
      const { workspaceId } = callingKey(context);
      const row = await store.findApi(context.call, workspaceId, apiId);
      if (row === undefined) throw apiNotFound();
      return { api: toApi(row) };
    },

    async listApis(request, context) {
      const { workspaceId } = callingKey(context);
      const page = parsePageRequest("apis", request);
      const found = await store.listApis(context.call, workspaceId, page);
      const { rows, pagination } = buildPage("apis", page, found, (row) => row.apiId);
      return { apis: rows.map(toApi), pagination };
    },

    async deleteApi({ apiId }, context) {
      const { workspaceId } = callingKey(context);
      context.call.revokes = true;
      const timeline = keyCache.knownTimeline();
      const result = await store.deleteApi(context.call, workspaceId, apiId, actorOf(context));
      if (result === "exceeds caller") throw apiExceedsCaller();
      if (result === "of caller") throw apiOfCaller();
      // Also if the API is already deleted: a retrying client may not know how its first attempt ended.
      const isDeleted = result === "deleted";
      await (isDeleted ? keyCache.awaitPropagation() : keyCache.awaitEarlierChanges(context.call, timeline));
      if (!isDeleted) throw apiNotFound();
      return {};
    },
  } satisfies Handlers<typeof ApisService>;
}
