import { create, type DescMessage, type Message, toBinary } from "@bufbuild/protobuf";
import { anyPack, durationFromMs } from "@bufbuild/protobuf/wkt";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../gen/google/rpc/status_pb.js";
import { type ApiError, grpcStatusOf, pathOf, reasonOf, retryAfterMsOf } from "../errors.js";

/** An error as google.rpc.Status bytes, for gRPC's `grpc-status-details-bin`. */
export function toStatusBytes(error: ApiError, requestId: string): Uint8Array {
  const details = detailsOf(error, requestId).map(({ desc, value }) => anyPack(desc, value));
  const status = create(StatusSchema, { code: grpcStatusOf(error.code), message: error.detail, details });
  return toBinary(StatusSchema, status);
}

/** A message in the details of an error. */
export interface Detail {
  readonly desc: DescMessage;
  readonly value: Message;
}

/** The machine-readable details of an error: its code, the invalid fields, and when to retry. */
export function detailsOf(error: ApiError, requestId: string): Detail[] {
  const { code, options } = error;
  const details: Detail[] = [];
  const add = (desc: DescMessage, value: Message) => details.push({ desc, value });

  const metadata = { requestId, type: pathOf(code) };
  add(ErrorInfoSchema, create(ErrorInfoSchema, { reason: reasonOf(code), domain: "latchkey", metadata }));
  if (options.fields !== undefined) {
    const fieldViolations = options.fields.map(({ location, message }) => ({ field: location, description: message }));
    add(BadRequestSchema, create(BadRequestSchema, { fieldViolations }));
  }
  const retryAfterMs = retryAfterMsOf(error);
  if (retryAfterMs !== undefined) {
    add(RetryInfoSchema, create(RetryInfoSchema, { retryDelay: durationFromMs(retryAfterMs) }));
  }
  return details;
}
