import { type DescMessage, fromBinary, type MessageShape } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import type { Metadata } from "@grpc/grpc-js";
import { type Status, StatusSchema } from "../../../gen/google/rpc/status_pb.js";

/** The `grpc-status-details-bin` of a response; undefined if the response is not from the service. */
export function readStatusDetails(trailers: Metadata): Status | undefined {
  const [bytes] = trailers.get("grpc-status-details-bin");
  return bytes instanceof Buffer ? fromBinary(StatusSchema, bytes) : undefined;
}

/** The same from the text of the header. */
export function parseStatusDetails(base64: string): Status {
  return fromBinary(StatusSchema, Buffer.from(base64, "base64"));
}

/** The first detail of this type. */
export function findDetail<Schema extends DescMessage>(
  status: Status | undefined,
  schema: Schema,
): MessageShape<Schema> | undefined {
  return status?.details.map((any) => anyUnpack(any, schema)).find((detail) => detail !== undefined);
}

/** A detail of a Connect error, as its JSON encodes it. */
export interface ConnectDetail {
  readonly type: string;
  readonly value: string;
}

/** The first detail of this type in a Connect error. */
export function findConnectDetail<Schema extends DescMessage>(
  details: readonly ConnectDetail[] | undefined,
  schema: Schema,
): MessageShape<Schema> | undefined {
  const found = details?.find(({ type }) => type === schema.typeName);
  return found && fromBinary(schema, Buffer.from(found.value, "base64"));
}
