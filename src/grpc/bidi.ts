import { create, type DescMessage, type Message, type MessageInitShape } from "@bufbuild/protobuf";
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
import { errorTrailers, isResponded, respondTrailers, responseHeaders } from "./response.js";
import type { TurnShares } from "./turn-shares.js";
import { type HandleStream, tenantOf } from "./unary.js";

/** How many bytes a client may leave unread. A client that reads at all has a fraction of this. */
const maxUnreadBytes = 256 * 1_024;

/**
 * Serves a procedure with a bidirectional stream. The stream has no deadline. It ends when its client ends it, or with an
 * error. It is logged once, at its end.
 *
 * @param encode encodes a response, with its prefix
 * @param shares shares each turn of the event loop between tenants
 * @param acceptsLoad whether the event loop has capacity for a message. Each message is checked, because one stream
 *   brings many. The others are dropped: if the stream were ended, all clients would reconnect during the overload
 */
export function createBidiHandler(
  { method, path, beginSpan, admit, recheck, validate, serve }: StreamProcedure,
  limits: MessageLimits,
  encode: (response: Message) => Buffer,
  shares: TurnShares,
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
    const incoming = shares.openQueue({ process, onWait: () => open.pause(), onDrain });
    let caller: Principal | undefined;
    let served: ServerStream<Message> | undefined;
    let isEnded = false;
    let hasRequestEnded = false;
    let error: ApiError | undefined;

    function newCall(): Call {
      return {
        requestId: mintId("req"),
        deadline: performance.now() + maxCallMs,
        connection: open.connection,
        workspaceId: undefined,
        callerId: undefined,
      };
    }

    function trailers() {
      return error
        ? errorTrailers(error, firstCall)
        : { "grpc-status": status.OK, "x-request-id": firstCall.requestId };
    }

    function end(reason: ApiError | undefined): void {
      if (isEnded) return;
      isEnded = true;
      error = reason;
      incoming.clear();
      open.resume();
      served?.closed();
      open.markEnded();
      open.discard();
      if (stream.headersSent && !stream.closed) stream.end();
      else respondTrailers(stream, trailers());
      const workspaceId = caller?.kind === "key" ? caller.workspaceId : undefined;
      const { requestId, span } = firstCall;
      logCall({ requestId, protocol: "grpc", method: path, workspaceId, startedAt, error, span });
    }

    const fail = (thrown: unknown) => end(toApiError(thrown));

    const reserve = () => open.reserveOnly(incoming.bytes + stream.writableLength);

    function onDrain(): void {
      open.resume();
      if (hasRequestEnded) end(undefined);
    }

    function process(framed: Buffer): void {
      if (isEnded || !acceptsLoad()) return;
      try {
        const message = readBinary(method.input, framed.subarray(prefixBytes));
        validate(message);
        served?.receive(message);
      } catch (thrown) {
        fail(thrown);
      }
    }

    function accept(admitted: Principal): void {
      if (isEnded) return;
      caller = admitted;
      checkHeaders();
      if (!open.assign(tenantOf(admitted))) throw serviceOverloaded();
      open.markBidirectional();
      const key = callingKey({ caller: admitted, call: firstCall });
      served = serve(
        {
          send: (message) => stream.write(encode(create(method.output, message as MessageInitShape<DescMessage>))),
          isCongested: () => stream.writableLength > maxUnreadBytes || !reserve(),
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
      if (!isResponded(stream)) {
        stream.respond(responseHeaders, { waitForTrailers: true });
        stream.once("wantTrailers", () => stream.sendTrailers(trailers()));
      }
      incoming.begin(tenantOf(admitted));
      open.admit();
    }

    open.refuse = fail;
    open.onClosed = () => end(cancelled());
    open.readMessages(limits, {
      message(framed) {
        if (isEnded) return;
        incoming.push(framed);
        reserve();
      },
      end() {
        hasRequestEnded = true;
        if (incoming.isEmpty) end(undefined);
      },
    });
    try {
      const admitted = admit(firstCall, authorization);
      if (!(admitted instanceof Promise)) {
        accept(admitted);
        return;
      }
      admitted.then(accept).catch(fail);
      if (!open.reserve(undefined)) throw serviceOverloaded();
    } catch (thrown) {
      fail(thrown);
    }
  };
}
