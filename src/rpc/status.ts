import { create, type DescMessage, type Message, toBinary } from "@bufbuild/protobuf";
import { anyPack, durationFromMs } from "@bufbuild/protobuf/wkt";
import { ConnectError } from "@connectrpc/connect";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../gen/google/rpc/status_pb.js";
import { type ApiError, grpcStatusOf, pathOf, reasonOf, retryAfterMsOf, retryAfterOf } from "../errors.js";

/** A failure as google.rpc.Status bytes, for gRPC's `grpc-status-details-bin`. */
export function toStatusBytes(failure: ApiError, requestId: string): Uint8Array {
  const details = detailsOf(failure, requestId).map(({ desc, value }) => anyPack(desc, value));
  const status = create(StatusSchema, { code: grpcStatusOf(failure.code), message: failure.detail, details });
  return toBinary(StatusSchema, status);
}

/** A failure as Connect knows it, with the same details. */
export function toConnectError(failure: ApiError, requestId: string): ConnectError {
  const retryAfter = retryAfterOf(failure);
  const metadata = { "x-request-id": requestId, ...(retryAfter && { "retry-after": retryAfter }) };
  return new ConnectError(failure.detail, grpcStatusOf(failure.code), metadata, detailsOf(failure, requestId));
}

interface Detail {
  readonly desc: DescMessage;
  readonly value: Message;
}

/** What a program can read of a failure: which it is, which fields to mend, and when to try again. */
function detailsOf(failure: ApiError, requestId: string): Detail[] {
  const { code, more } = failure;
  const details: Detail[] = [];
  const say = (desc: DescMessage, value: Message) => details.push({ desc, value });

  const metadata = { requestId, type: pathOf(code) };
  say(ErrorInfoSchema, create(ErrorInfoSchema, { reason: reasonOf(code), domain: "latchkey", metadata }));
  if (more.fields !== undefined) {
    const fieldViolations = more.fields.map(({ location, message }) => ({ field: location, description: message }));
    say(BadRequestSchema, create(BadRequestSchema, { fieldViolations }));
  }
  const retryAfterMs = retryAfterMsOf(failure);
  if (retryAfterMs !== undefined) {
    say(RetryInfoSchema, create(RetryInfoSchema, { retryDelay: durationFromMs(retryAfterMs) }));
  }
  return details;
}
