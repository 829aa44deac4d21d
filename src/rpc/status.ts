import { create, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { ConnectError } from "@connectrpc/connect";
import { BadRequestSchema, type ErrorInfo, ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../gen/google/rpc/status_pb.js";
import { type Failure, grpcStatusOf, pathOf, reasonOf } from "../errors.js";

/** A failure as google.rpc.Status bytes, for gRPC's `grpc-status-details-bin`. */
export function toStatusBytes(failure: Failure, requestId: string): Uint8Array {
  const details = [anyPack(ErrorInfoSchema, errorInfo(failure, requestId))];
  if (failure.more.fields !== undefined) details.push(anyPack(BadRequestSchema, badRequest(failure)));
  const status = create(StatusSchema, { code: grpcStatusOf(failure.code), message: failure.detail, details });
  return toBinary(StatusSchema, status);
}

/** A failure as Connect knows it, with the same details. */
export function toConnectError(failure: Failure, requestId: string): ConnectError {
  const info = { desc: ErrorInfoSchema, value: errorInfo(failure, requestId) };
  const fields = failure.more.fields && { desc: BadRequestSchema, value: badRequest(failure) };
  const details = fields ? [info, fields] : [info];
  const metadata = { "x-request-id": requestId };
  return new ConnectError(failure.detail, grpcStatusOf(failure.code), metadata, details);
}

function errorInfo({ code }: Failure, requestId: string): ErrorInfo {
  return create(ErrorInfoSchema, {
    reason: reasonOf(code),
    domain: "latchkey",
    metadata: { requestId, type: pathOf(code) },
  });
}

function badRequest({ more }: Failure) {
  const fieldViolations = (more.fields ?? []).map(({ location, message }) => ({
    field: location,
    description: message,
  }));
  return create(BadRequestSchema, { fieldViolations });
}
