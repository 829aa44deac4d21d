import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type UpdateIdentityRequest,
  UpdateIdentityRequestSchema,
} from "../../gen/latchkey/v1/identities_service_pb.js";
import type { IdentitySchema } from "../../gen/latchkey/v1/identity_pb.js";
import type { RateLimitSchema, RateLimitSettings as RequestedRateLimit } from "../../gen/latchkey/v1/rate_limit_pb.js";
import { changedFields } from "../call/update-mask.js";
import { mintId } from "../ids.js";
import type { RateLimitSettings } from "../revocation/key-state.js";
import type { IdentityChanges, IdentityReference, IdentityRow } from "./store.js";

/** Converts the row of an identity to its message. */
export function toIdentity(row: IdentityRow): MessageInitShape<typeof IdentitySchema> {
  return {
    identityId: row.identityId,
    id: row.identityId,
    externalId: row.externalId,
    meta: row.meta,
    ratelimits: row.ratelimits.map(toRateLimit),
    createdAt: timestampFromDate(row.createdAt),
    updatedAt: timestampFromDate(row.updatedAt),
  };
}

/** Converts a stored rate limit to its message. */
export function toRateLimit(settings: RateLimitSettings): MessageInitShape<typeof RateLimitSchema> {
  return { ...settings, limit: BigInt(settings.limit), duration: BigInt(settings.duration) };
}

/** Converts requested rate limits to stored ones. The ids of those that replace others with the same name are new. */
export function fromRateLimits(requested: readonly RequestedRateLimit[]): RateLimitSettings[] {
  return requested.map(({ name, limit, duration, autoApply = false }) => {
    return { id: mintId("rl"), name, limit: Number(limit), duration: Number(duration), autoApply };
  });
}

/** The reference of a validated request. protovalidate has checked that exactly one is set. */
export function toReference({ reference }: { reference: IdentityReference | { case: undefined } }): IdentityReference {
  if (reference.case === undefined) throw new Error("validation accepted a request without its required reference");
  return reference;
}

/** The changes of an update. A field that is in the update mask and unset is cleared. */
export function toChanges(request: UpdateIdentityRequest): IdentityChanges {
  const changed = changedFields(UpdateIdentityRequestSchema, request);
  return {
    ...(changed.has("meta") && { meta: request.meta ?? {} }),
    ...(changed.has("ratelimits") && { ratelimits: fromRateLimits(request.ratelimits) }),
  };
}
