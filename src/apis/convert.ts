import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ApiSchema } from "../../gen/latchkey/v1/api_pb.js";
import type { ApiRow } from "./store.js";

/** Converts the row of an API to its message. */
export function toApi({ apiId, name, createdAt }: ApiRow): MessageInitShape<typeof ApiSchema> {
  return { id: apiId, name, createdAt: timestampFromDate(createdAt) };
}
