import { durationMs } from "@bufbuild/protobuf/wkt";
import { ConnectError } from "@connectrpc/connect";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { LatchkeyError } from "./error.js";

/** Reads the details of a ConnectError; undefined if the error does not come from the service. */
export function toLatchkeyError(error: unknown): LatchkeyError | undefined {
  if (!(error instanceof ConnectError)) return undefined;
  const info = error.findDetails(ErrorInfoSchema).find(({ domain }) => domain === "latchkey");
  if (info === undefined) return undefined;
  const [{ retryDelay } = {}] = error.findDetails(RetryInfoSchema);
  const violations = error.findDetails(BadRequestSchema).flatMap(({ fieldViolations }) => fieldViolations);
  const description = {
    message: error.rawMessage,
    type: info.metadata["type"] ?? info.reason.toLowerCase(),
    status: error.code,
    requestId: info.metadata["requestId"] ?? "",
    fieldErrors: violations.map(({ field, description }) => ({ location: field, message: description })),
    retryAfterMs: retryDelay && durationMs(retryDelay),
  };
  return new LatchkeyError(description, { cause: error });
}
