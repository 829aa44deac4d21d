import { fromBinary, type Message } from "@bufbuild/protobuf";
import { Metadata, type ServerUnaryCall, type sendUnaryData } from "@grpc/grpc-js";
import type { Call } from "../call.js";
import { type Failure, grpcStatusOf, invalidInput, payloadTooLarge } from "../errors.js";
import { mintId } from "../ids.js";
import type { LogCall } from "../observe/calls.js";
import { largestMessage, longestCallMs, type Procedure, toFailure } from "./pipeline.js";
import { toStatusBytes } from "./status.js";

/** Handles the gRPC calls of a procedure. Their requests stay bytes until the caller has been admitted. */
export function createUnaryHandler({ method, path, beginSpan, admit, perform }: Procedure, logCall: LogCall) {
  return async (rpc: ServerUnaryCall<Buffer, Message>, respond: sendUnaryData<Message>): Promise<void> => {
    const requestId = mintId("req");
    const startedAt = performance.now();
    const call: Call = {
      requestId,
      deadline: Math.min(Date.now() + longestCallMs, Number(rpc.getDeadline())),
      headers: (name) => rpc.metadata.get(name).map(String),
      client: rpc,
      leaving: "cancelled",
      span: beginSpan?.("grpc", (name) => rpc.metadata.get(name)[0]?.toString()),
      answerHeaders: undefined,
      ended: undefined,
      work: undefined,
    };
    let workspaceId: string | undefined;
    let failure: Failure | undefined;
    try {
      const caller = await admit(call, rpc.metadata.get("authorization").map(String));
      if (caller.kind === "key") workspaceId = caller.workspaceId;
      const response = await perform(call, caller, () => decode(method.input, rpc.request));
      respond(null, response, trailers(call));
    } catch (error) {
      failure = toFailure(error);
      const metadata = trailers(call);
      metadata.set("grpc-status-details-bin", Buffer.from(toStatusBytes(failure, requestId)));
      respond({ code: Number(grpcStatusOf(failure.code)), details: failure.detail, metadata });
    }
    logCall({ requestId, door: "grpc", method: path, workspaceId, startedAt, failure, span: call.span });
  };
}

/** What cannot be decoded is the caller's mistake, not ours. */
function decode(schema: Procedure["method"]["input"], bytes: Uint8Array): Message {
  if (bytes.length > largestMessage) throw payloadTooLarge("body", largestMessage);
  try {
    return fromBinary(schema, bytes);
  } catch {
    throw invalidInput([{ location: "body", message: `is not a ${schema.typeName} message` }]);
  }
}

function trailers({ requestId, answerHeaders }: Call): Metadata {
  const metadata = new Metadata();
  metadata.set("x-request-id", requestId);
  if (answerHeaders === undefined) return metadata;
  for (const [name, value] of Object.entries(answerHeaders)) metadata.set(name, value);
  return metadata;
}
