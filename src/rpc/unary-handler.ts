import type { EventEmitter } from "node:events";
import { fromBinary, type Message } from "@bufbuild/protobuf";
import { Metadata, type StatusObject, type sendUnaryData } from "@grpc/grpc-js";
import type { Call } from "../call.js";
import { type Failure, grpcStatusOf, invalidInput, payloadTooLarge } from "../errors.js";
import { mintId } from "../ids.js";
import type { LogCall } from "../observe/calls.js";
import { timeoutOf } from "./call-head.js";
import { largestMessage, longestCallMs, type Procedure, toFailure } from "./pipeline.js";
import { toStatusBytes } from "./status.js";
import { patienceMs, refuseBadTimeout } from "./timeouts.js";

/** A call as grpc-js hands it over. It emits `cancelled` when its client goes away. */
export interface UnaryCall extends EventEmitter {
  readonly metadata: Metadata;
  /** The message, still as bytes. */
  readonly request: Uint8Array;
  /** The address and port of its client. */
  getPeer?(): string;
}

/**
 * Answers a call.
 *
 * @param unread why its message could not be had, if so
 */
export type UnaryHandler = (rpc: UnaryCall, respond: sendUnaryData<Message>, unread?: Failure) => Promise<void>;

/** Handles the gRPC calls of a procedure. Their requests stay bytes until the caller has been admitted. */
export function createUnaryHandler(procedure: Procedure, logCall: LogCall): UnaryHandler {
  const { method, path, beginSpan, admit, perform } = procedure;
  return async (rpc, respond, unread) => {
    const requestId = mintId("req");
    const startedAt = performance.now();
    const timeout = timeoutOf(rpc.metadata);
    const call: Call = {
      requestId,
      deadline: Date.now() + Math.min(longestCallMs, patienceMs(timeout)),
      headers: (name) => rpc.metadata.get(name).map(String),
      peer: () => rpc.getPeer?.() ?? "unknown",
      client: rpc,
      leaving: "cancelled",
      span: beginSpan?.("grpc", (name) => rpc.metadata.get(name)[0]?.toString()),
      workspaceId: undefined,
      answerHeaders: undefined,
      ended: undefined,
      work: undefined,
    };
    let workspaceId: string | undefined;
    let failure: Failure | undefined;
    try {
      const caller = await admit(call, rpc.metadata.get("authorization").map(String));
      if (caller.kind === "key") workspaceId = caller.workspaceId;
      const response = await perform(call, caller, () => {
        refuseBadTimeout("grpc", timeout);
        if (unread !== undefined) throw unread;
        return decode(method.input, rpc.request);
      });
      respond(null, response, trailers(call));
    } catch (error) {
      failure = toFailure(error);
      respond(toStatus(failure, call));
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

/** A failure as the status of a gRPC call. */
export function toStatus(failure: Failure, call: Pick<Call, "requestId" | "answerHeaders">): StatusObject {
  const metadata = trailers(call);
  metadata.set("grpc-status-details-bin", Buffer.from(toStatusBytes(failure, call.requestId)));
  return { code: Number(grpcStatusOf(failure.code)), details: failure.detail, metadata };
}

function trailers({ requestId, answerHeaders }: Pick<Call, "requestId" | "answerHeaders">): Metadata {
  const metadata = new Metadata();
  metadata.set("x-request-id", requestId);
  if (answerHeaders === undefined) return metadata;
  for (const [name, value] of Object.entries(answerHeaders)) metadata.set(name, value);
  return metadata;
}
