import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { IdentitySchema } from "../../gen/latchkey/v1/identity_pb.js";
import type { IdentityReference, IdentityRow } from "./store.js";

/** Converts the row of an identity to its message. */
export function toIdentity(row: IdentityRow): MessageInitShape<typeof IdentitySchema> {
  return {
    identityId: row.identityId,
    externalId: row.externalId,
    meta: row.meta,
    createdAt: timestampFromDate(row.createdAt),
    updatedAt: timestampFromDate(row.updatedAt),
  };
}

/** The reference of a validated request. protovalidate has checked that exactly one is set. */
export function toReference({ reference }: { reference: IdentityReference | { case: undefined } }): IdentityReference {
  if (reference.case === undefined) throw new Error("validation accepted a request without its required reference");
  return reference;
}
