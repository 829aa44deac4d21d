import { create, type Message, toBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import type { Call } from "../call/call.js";
import { callingKey, type Principal } from "../call/context.js";
import { chain } from "../call/maybe-promise.js";
import type { ServerStream } from "../call/stream.js";
import { type ApiError, cancelled, serviceOverloaded } from "../errors.js";
import { mintId } from "../ids.js";
import type { AccessLog } from "../observe/access-log.js";
import { readBinary } from "../rpc/decode-binary.js";
import { maxCallMs, type StreamProcedure, toApiError } from "../rpc/pipeline.js";
import { type MessageLimits, prefixBytes } from "./message-reader.js";
import { valuesOf } from "./request-headers.js";
import { errorTrailers, frameMessage, isResponded, respondTrailers, responseHeaders } from "./response.js";
import { type HandleStream, tenantOf } from "./unary.js";

/** How many bytes a client may leave unread. A client that reads at all has a fraction of this. */
const maxUnreadBytes = 256 * 1_024;

/**
 * Serves a procedure with a bidirectional stream. The stream has no deadline. It ends when its client ends it, or with an
 * error. It is logged once, at its end.
 *
 * @param acceptsLoad whether the event loop has capacity for a message. Each message is checked, because one stream
 *   brings many
 */
export function createBidiHandler(
  { method, path, beginSpan, admit, recheck, validate, serve }: StreamProcedure,
  limits: MessageLimits,
  acceptsLoad: () => boolean,
  logCall: AccessLog,
): HandleStream {
  return (open, rawHeaders, checkHeaders) => {
    const { stream, startedAt } = open;
    const authorization = valuesOf(rawHeaders, "authorization");
    const firstCall: Call = {
      ...newCall(),
      headers: (name) => valuesOf(rawHeaders, name),
      client: stream,
      closeEvent: "close",
      span: beginSpan?.("grpc", (name) => valuesOf(rawHeaders, name)[0]),
    };
    let caller: Principal | undefined;
    let served: ServerStream<Message> | undefined;
    let trailers: Parameters<typeof stream.sendTrailers>[0] = { "grpc-status": status.OK };
    let isEnded = false;

    function newCall(): Call {
      return {
        requestId: mintId("req"),
        deadline: performance.now() + maxCallMs,
        connection: open.connection,
        workspaceId: undefined,
        callerId: undefined,
      };
    }

    function log(error: ApiError | undefined): void {
      const workspaceId = caller?.kind === "key" ? caller.workspaceId : undefined;
      const { requestId, span } = firstCall;
      logCall({ requestId, protocol: "grpc", method: path, workspaceId, startedAt, error, span });
    }

    function end(error: ApiError | undefined): void {
      if (isEnded) return;
      isEnded = true;
      served?.closed();
      open.discard();
      trailers = error ? errorTrailers(error, firstCall) : { ...trailers, "x-request-id": firstCall.requestId };
      if (served === undefined) respondTrailers(stream, trailers);
      else if (!stream.closed) stream.end();
      log(error);
    }

    const fail = (thrown: unknown) => end(toApiError(thrown));

    function accept(admitted: Principal): void {
      if (isEnded) return;
      caller = admitted;
      checkHeaders();
      if (!open.assign(tenantOf(admitted))) throw serviceOverloaded();
      open.markAuthenticated();
      open.isBidirectional = true;
      const key = callingKey({ caller: admitted, call: firstCall });
      served = serve(
        {
          send: (message) =>
            stream.write(
              frameMessage(toBinary(method.output, create(method.output, message as Record<string, unknown>))),
            ),
          isCongested: () => stream.writableLength > maxUnreadBytes || !open.reserveInAll(stream.writableLength),
          end,
        },
        {
          workspaceId: key.workspaceId,
          recheck: () => chain(recheck(newCall(), key), (current) => callingKey({ caller: current, call: firstCall })),
          admit: () => admit(newCall(), authorization),
          newCall: () => ({ ...newCall(), workspaceId: key.workspaceId, callerId: key.keyId }),
          toApiError,
        },
      );
      if (isResponded(stream)) return;
      stream.respond(responseHeaders, { waitForTrailers: true });
      stream.once("wantTrailers", () => stream.sendTrailers(trailers ?? {}));
      open.admit();
    }

    open.refuse = fail;
    open.onClosed = () => end(cancelled());
    open.readMessages(limits, {
      message(framed) {
        if (isEnded || served === undefined) return;
        try {
          if (!acceptsLoad()) throw serviceOverloaded();
          const message = readBinary(method.input, framed.subarray(prefixBytes));
          validate(message);
          served.receive(message);
        } catch (error) {
          fail(error);
        }
      },
      end: () => end(undefined),
    });
    try {
      const admitted = admit(firstCall, authorization);
      if (!(admitted instanceof Promise)) return accept(admitted);
      admitted.then(accept).catch(fail);
      if (!open.reserve(undefined)) throw serviceOverloaded();
    } catch (error) {
      fail(error);
    }
  };
}
