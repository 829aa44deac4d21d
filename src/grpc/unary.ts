import type { Message } from "@bufbuild/protobuf";
import type { Call } from "../call/call.js";
import type { Principal } from "../call/context.js";
import { type ApiError, cancelled, invalidInput, responseMemoryExhausted, serviceOverloaded } from "../errors.js";
import { mintId } from "../ids.js";
import type { AccessLog } from "../observe/access-log.js";
import { readBinary } from "../rpc/decode-binary.js";
import { maxCallMs, type Procedure, toApiError } from "../rpc/pipeline.js";
import { refuseBadTimeout, timeoutMs } from "../rpc/timeout.js";
import { type MessageLimits, prefixBytes } from "./message-reader.js";
import { type RawHeaders, valuesOf } from "./request-headers.js";
import { errorTrailers, respondMessage, respondTrailers } from "./response.js";
import type { OpenStream } from "./stream-limits.js";

/**
 * Handles a gRPC call of a procedure: authenticates and authorises it by its head, reads its message, performs it and
 * answers. Who may not call brings no message.
 *
 * @param check throws if the rest of the head is not as it should be
 */
export type HandleUnary = (open: OpenStream, raw: RawHeaders, check: () => void) => void;

/**
 * Serves a procedure on HTTP/2 streams, without grpc-js: most of what a call costs there is work that is done here
 * already. Decision 19 has the figures.
 *
 * @param write writes a response, with its prefix
 */
export function createUnaryHandler(
  procedure: Procedure,
  limits: MessageLimits,
  write: (response: Message) => Buffer,
  logCall: AccessLog,
): HandleUnary {
  const { method, path, beginSpan, admit, perform } = procedure;

  return (open, raw, check) => {
    const { stream, beganAt } = open;
    const timeouts = valuesOf(raw, "grpc-timeout");
    const timeout = timeouts.length > 0 ? timeouts.join() : undefined;
    const call: Call = {
      requestId: mintId("req"),
      deadline: beganAt + Math.min(maxCallMs, timeoutMs("grpc", timeout)),
      headers: (name) => valuesOf(raw, name),
      connection: open.connection,
      client: stream,
      closeEvent: "close",
      span: beginSpan?.("grpc", (name) => valuesOf(raw, name)[0]),
      workspaceId: undefined,
      callerId: undefined,
      responseHeaders: undefined,
      abortReason: undefined,
      onAbort: undefined,
    };
    let caller: Principal | undefined;
    let request: Buffer | undefined;
    let messages = 0;
    let performing = false;
    let answered = false;

    function log(failure: ApiError | undefined): void {
      const workspaceId = caller?.kind === "key" ? caller.workspaceId : undefined;
      const { requestId, span } = call;
      logCall({ requestId, protocol: "grpc", method: path, workspaceId, startedAt: beganAt, failure, span });
    }

    function fail(error: unknown): void {
      if (answered) return;
      answered = true;
      const failure = toApiError(error);
      open.discard();
      respondTrailers(stream, errorTrailers(failure, call));
      log(failure);
    }

    function succeed(response: Message): void {
      if (answered) return;
      const bytes = write(response);
      // It is held until its client has read it.
      if (!open.hold(bytes.length)) {
        fail(responseMemoryExhausted());
        return;
      }
      answered = true;
      respondMessage(stream, bytes, call);
      log(undefined);
    }

    function accept(admitted: Principal): void {
      if (answered) return; // it was refused while it waited, for what it brought
      caller = admitted;
      refuseBadTimeout("grpc", timeout);
      check();
      if (!open.assign(tenantOf(caller))) throw serviceOverloaded();
      open.authenticated();
      open.admit();
    }

    function performIt(admitted: Principal, bytes: Buffer): void {
      performing = true;
      try {
        const response = perform(call, admitted, () => readBinary(method.input, bytes));
        if (response instanceof Promise) response.then(succeed).catch(fail);
        else succeed(response);
      } catch (error) {
        fail(error);
      }
    }

    open.refuse = fail;
    open.closed = () => {
      if (!performing && !answered) fail(cancelled());
    };
    open.readMessages(limits, {
      message(framed) {
        messages += 1;
        request = framed.subarray(prefixBytes);
      },
      end(isComplete) {
        if (answered || caller === undefined) return;
        if (request !== undefined && messages === 1 && isComplete) performIt(caller, request);
        else fail(notOneMessage());
      },
    });
    try {
      const admitted = admit(call, valuesOf(raw, "authorization"));
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

/** Whose memory a call takes. */
function tenantOf(caller: Principal): string {
  return caller.kind === "key" ? caller.workspaceId : caller.kind;
}

const notOneMessage = () => invalidInput([{ location: "body", message: "is not exactly one gRPC message" }]);
