import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { KeySchema } from "../../gen/latchkey/v1/key_pb.js";
import { toIdentity } from "../identities/convert.js";
import type { KeyRow } from "./store.js";

/** A key's row as its message. */
export function toKey(row: KeyRow): MessageInitShape<typeof KeySchema> {
  return {
    keyId: row.keyId,
    workspaceId: row.workspaceId,
    start: row.start,
    name: row.name ?? undefined,
    enabled: row.enabled,
    permissions: [...row.permissions],
    identity: identityOf(row),
    meta: row.meta ?? undefined,
    expires: row.expiresAt ? timestampFromDate(row.expiresAt) : undefined,
    createdAt: timestampFromDate(row.createdAt),
    updatedAt: timestampFromDate(row.updatedAt),
  };
}

function identityOf(row: KeyRow) {
  if (row.identityId === null) return undefined;
  return toIdentity({
    identityId: row.identityId,
    externalId: row.externalId,
    meta: row.identityMeta,
    createdAt: row.identityCreatedAt,
    updatedAt: row.identityUpdatedAt,
  });
}
