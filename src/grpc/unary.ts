import type { Message } from "@bufbuild/protobuf";
import type { Call } from "../call/call.js";
import type { Principal } from "../call/context.js";
import { type ApiError, cancelled, invalidInput, responseMemoryExhausted, serviceOverloaded } from "../errors.js";
import { mintId } from "../ids.js";
import type { AccessLog } from "../observe/access-log.js";
import { readBinary } from "../rpc/decode-binary.js";
import { maxCallMs, type Procedure, toApiError } from "../rpc/pipeline.js";
import { timeoutMs, validateTimeout } from "../rpc/timeout.js";
import { type MessageLimits, prefixBytes } from "./message-reader.js";
import type { OpenStream } from "./open-stream.js";
import { type RawHeaders, valuesOf } from "./request-headers.js";
import { errorTrailers, respondMessage, respondTrailers } from "./response.js";

/**
 * Handles the stream of a gRPC call. It authenticates and authorizes the caller by the headers, reads the message,
 * performs the procedure and responds. The message of a caller that is refused is not processed.
 *
 * @param checkHeaders throws if other headers are invalid
 */
export type HandleStream = (open: OpenStream, rawHeaders: RawHeaders, checkHeaders: () => void) => void;

/**
 * Serves a procedure on HTTP/2 streams, without grpc-js. Most of the cost of a call in grpc-js is work that is already
 * done here. Decision 26 has the figures.
 *
 * @param encode encodes a response, with its prefix
 */
export function createUnaryHandler(
  procedure: Procedure,
  limits: MessageLimits,
  encode: (response: Message) => Buffer,
  logCall: AccessLog,
): HandleStream {
  const { method, path, beginSpan, admit, perform } = procedure;

  return (open, rawHeaders, checkHeaders) => {
    const { stream, startedAt } = open;
    const timeouts = valuesOf(rawHeaders, "grpc-timeout");
    const timeout = timeouts.length > 0 ? timeouts.join() : undefined;
    const call: Call = {
      requestId: mintId("req"),
      deadline: startedAt + Math.min(maxCallMs, timeoutMs("grpc", timeout)),
      headers: (name) => valuesOf(rawHeaders, name),
      connection: open.connection,
      client: stream,
      closeEvent: "close",
      span: beginSpan?.("grpc", (name) => valuesOf(rawHeaders, name)[0]),
      workspaceId: undefined,
      callerId: undefined,
      responseHeaders: undefined,
      abortReason: undefined,
      onAbort: undefined,
    };
    let caller: Principal | undefined;
    let request: Buffer | undefined;
    let messages = 0;
    let isPerforming = false;
    let hasResponded = false;

    function log(error: ApiError | undefined): void {
      const workspaceId = caller?.kind === "key" ? caller.workspaceId : undefined;
      const { requestId, span } = call;
      logCall({ requestId, protocol: "grpc", method: path, workspaceId, startedAt, error: error, span });
    }

    function fail(thrown: unknown): void {
      if (hasResponded) return;
      hasResponded = true;
      const error = toApiError(thrown);
      open.discard();
      respondTrailers(stream, errorTrailers(error, call));
      log(error);
    }

    function succeed(response: Message): void {
      if (hasResponded) return;
      const bytes = encode(response);
      // The response stays in memory until the client has read it.
      if (!open.reserveBuffer(bytes.length)) {
        fail(responseMemoryExhausted());
        return;
      }
      hasResponded = true;
      respondMessage(stream, bytes, call);
      log(undefined);
    }

    function accept(admitted: Principal): void {
      if (hasResponded) return; // refused for its message while the caller was authenticated
      caller = admitted;
      validateTimeout("grpc", timeout);
      checkHeaders();
      if (!open.assign(tenantOf(caller))) throw serviceOverloaded();
      open.markAuthenticated();
      open.admit();
    }

    function performRequest(admitted: Principal, bytes: Buffer): void {
      isPerforming = true;
      try {
        const response = perform(call, admitted, () => readBinary(method.input, bytes));
        if (response instanceof Promise) response.then(succeed).catch(fail);
        else succeed(response);
      } catch (error) {
        fail(error);
      }
    }

    open.refuse = fail;
    open.onClosed = () => {
      if (!isPerforming && !hasResponded) fail(cancelled());
    };
    open.readMessages(limits, {
      message(framed) {
        messages += 1;
        request = framed.subarray(prefixBytes);
      },
      end(isComplete) {
        if (hasResponded || caller === undefined) return;
        if (request !== undefined && messages === 1 && isComplete) performRequest(caller, request);
        else fail(notOneMessage());
      },
    });
    try {
      const admitted = admit(call, valuesOf(rawHeaders, "authorization"));
      if (!(admitted instanceof Promise)) {
        accept(admitted);
        return;
      }
      admitted.then(accept).catch(fail);
      if (!open.reserve(undefined)) throw serviceOverloaded();
    } catch (error) {
      fail(error);
    }
  };
}

/** The tenant of the memory budget that a call is charged to. */
export function tenantOf(caller: Principal): string {
  return caller.kind === "key" ? caller.workspaceId : caller.kind;
}

const notOneMessage = () => invalidInput([{ location: "body", message: "must contain exactly one gRPC message" }]);
