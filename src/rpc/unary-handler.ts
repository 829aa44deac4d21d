import type { ServerHttp2Stream } from "node:http2";
import type { Message } from "@bufbuild/protobuf";
import { Metadata, type StatusObject, type sendUnaryData } from "@grpc/grpc-js";
import type { Principal } from "../auth/principal.js";
import type { Call } from "../call.js";
import { callCancelled, type Failure, grpcStatusOf, noMemoryForResponse, serviceOverloaded } from "../errors.js";
import { mintId } from "../ids.js";
import type { LogCall } from "../observe/calls.js";
import { type RawHead, valuesOf } from "./call-head.js";
import { longestCallMs, type Procedure, toFailure } from "./pipeline.js";
import { readBinary } from "./read-binary.js";
import { toStatusBytes } from "./status.js";
import type { OpenStream } from "./stream-limits.js";
import { refuseBadTimeout, timeoutMs } from "./timeouts.js";

/** A call as grpc-js hands it over. */
export interface UnaryCall {
  /** The message, still as bytes. */
  readonly request: Uint8Array;
  /** An inner part of grpc-js 1.14.7: look at it when it is updated. */
  readonly call: { readonly stream: ServerHttp2Stream };
}

/** Handles the gRPC calls of a procedure. */
export interface UnaryHandler {
  /**
   * Authenticates and authorises a call by its head: who may not call brings no message.
   *
   * @param check throws if the rest of the head is not as it should be
   * @param answer answers the call with a failure
   * @param goOn has its message read
   */
  admit(open: OpenStream, raw: RawHead, check: () => void, answer: AnswerStatus, goOn: () => void): void;
  /** Performs an admitted call, whose message is there. */
  perform(rpc: UnaryCall, respond: sendUnaryData<Buffer>): void;
}

export type AnswerStatus = (status: StatusObject) => void;

/** A call from its head to its answer. */
interface StreamCall {
  readonly call: Call;
  readonly open: OpenStream;
  readonly startedAt: number;
  caller: Principal | undefined;
  /** Whether its message is there. */
  performing: boolean;
  /** Whether it was answered, and logged. */
  done: boolean;
}

/** @param write writes a response */
export function createUnaryHandler(
  procedure: Procedure,
  write: (response: Message) => Buffer,
  logCall: LogCall,
): UnaryHandler {
  const { method, path, beginSpan, admit, perform } = procedure;
  const calls = new WeakMap<ServerHttp2Stream, StreamCall>();

  function log({ call, startedAt, caller }: StreamCall, failure: Failure | undefined): void {
    const workspaceId = caller?.kind === "key" ? caller.workspaceId : undefined;
    logCall({
      requestId: call.requestId,
      door: "grpc",
      method: path,
      workspaceId,
      startedAt,
      failure,
      span: call.span,
    });
  }

  return {
    admit(open, raw, check, answer, goOn) {
      const timeouts = valuesOf(raw, "grpc-timeout");
      const timeout = timeouts.length > 0 ? timeouts.join() : undefined;
      const call: Call = {
        requestId: mintId("req"),
        deadline: open.beganAt + Math.min(longestCallMs, timeoutMs("grpc", timeout)),
        headers: (name) => valuesOf(raw, name),
        connection: open.connection,
        client: open.stream,
        leaving: "close",
        span: beginSpan?.("grpc", (name) => valuesOf(raw, name)[0]),
        workspaceId: undefined,
        callerId: undefined,
        answerHeaders: undefined,
        ended: undefined,
        work: undefined,
      };
      const begun: StreamCall = {
        call,
        open,
        startedAt: open.beganAt,
        caller: undefined,
        performing: false,
        done: false,
      };

      function refuse(failure: Failure): void {
        if (begun.done) return;
        begun.done = true;
        open.discard();
        answer(toStatus(failure, call));
        log(begun, failure);
      }

      function accept(caller: Principal): void {
        if (begun.done) return; // it was refused while it waited, for what it brought
        begun.caller = caller;
        try {
          refuseBadTimeout("grpc", timeout);
          check();
        } catch (error) {
          refuse(toFailure(error));
          return;
        }
        if (!open.assign(tenantOf(caller))) {
          refuse(serviceOverloaded());
          return;
        }
        open.authenticated();
        calls.set(open.stream, begun);
        goOn();
      }

      open.refuse = refuse;
      open.closed = () => {
        if (!begun.performing) refuse(callCancelled());
      };
      try {
        const caller = admit(call, valuesOf(raw, "authorization"));
        if (!(caller instanceof Promise)) {
          accept(caller);
          return;
        }
        caller.then(accept, (error) => refuse(toFailure(error)));
        if (!open.reserve(undefined)) refuse(serviceOverloaded());
      } catch (error) {
        refuse(toFailure(error));
      }
    },

    perform({ request, call: { stream } }, respond) {
      const begun = calls.get(stream);
      if (begun?.caller === undefined) throw new Error("a call was not admitted");
      const { call, open, caller } = begun;
      begun.performing = true;

      function succeed(response: Message): void {
        if (begun === undefined || begun.done) return;
        const bytes = write(response);
        // It is held until its client has read it.
        if (!open.hold(bytes.length)) {
          fail(noMemoryForResponse());
          return;
        }
        begun.done = true;
        respond(null, bytes, trailers(call));
        log(begun, undefined);
      }

      function fail(error: unknown): void {
        if (begun === undefined || begun.done) return;
        begun.done = true;
        const failure = toFailure(error);
        respond(toStatus(failure, call));
        log(begun, failure);
      }

      try {
        const response = perform(call, caller, () => readBinary(method.input, request));
        if (response instanceof Promise) response.then(succeed).catch(fail);
        else succeed(response);
      } catch (error) {
        fail(error);
      }
    },
  };
}

/** Whose memory a call takes. */
function tenantOf(caller: Principal): string {
  return caller.kind === "key" ? caller.workspaceId : caller.kind;
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
