// Sets limits that grpc-js has no option for, on its internal HTTP/2 server.
import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import type { Server } from "@grpc/grpc-js";
import { type ApiError, grpcStatusOf, serviceOverloaded } from "../errors.js";
import { mintId } from "../ids.js";
import type { Connections } from "../overload/connections.js";
import type { LoadShedder } from "../overload/event-loop.js";
import type { Limits } from "../overload/limits.js";
import type { MemoryBudget } from "../overload/memory-budget.js";
import type { ShedCounter } from "../overload/shed-counter.js";
import { alwaysServed, prepareResponse } from "../overload/shed-response.js";
import { toStatusBytes } from "../rpc/status.js";
import { type ServeStream, takeStreams } from "./internals.js";
import type { OpenStream } from "./open-stream.js";
import { headersForGrpcJs, type RawHeaders } from "./request-headers.js";
import { limitStreams } from "./stream-limits.js";

/**
 * Handles a stream before grpc-js sees it.
 *
 * @param passToGrpcJs lets grpc-js serve the stream
 */
export type Dispatch = (
  open: OpenStream,
  headers: IncomingHttpHeaders,
  rawHeaders: RawHeaders,
  passToGrpcJs: () => void,
) => void;

export interface Http2Limits {
  readonly guard: LoadShedder;
  readonly shedding: ShedCounter;
  readonly limits: Limits;
  readonly memory: MemoryBudget;
}

export interface LimitedServer {
  /** Sends a GOAWAY on each connection that is set up from now on. */
  closeNewSessions(): void;
  /** Stops the timer that checks for timeouts. */
  end(): void;
}

/**
 * Limits the connections and streams of a grpc-js server, and sheds calls while the event loop is overloaded. It sheds
 * before grpc-js has done its work, which is most of the cost of a call.
 *
 * @param server has exactly one connection injector
 * @param connections the open connections of the port
 */
export function limitServer(
  server: Server,
  connections: Connections,
  { guard, shedding, limits, memory }: Http2Limits,
  dispatch: Dispatch,
): LimitedServer {
  const respondOverloaded = prepareErrorResponse(serviceOverloaded());
  const { http2Server, serveStream } = takeStreams(server);
  const streams = limitStreams(limits, memory, connections);
  const dispatchOrShed: ServeStream = (stream, headers, flags, rawHeaders) => {
    const open = streams.of(stream);
    if (open === undefined || stream.closed) return; // the client has already reset it
    if (!alwaysServed.grpc.has(headers[":path"] ?? "") && !guard.accepts()) {
      shedding.count("event_loop");
      respondOverloaded(stream);
      open.discard();
      return;
    }
    dispatch(open, headers, rawHeaders, () => {
      if (open.admit()) serveStream(stream, headersForGrpcJs(headers), flags, rawHeaders);
    });
  };
  http2Server.on("session", streams.begin);
  http2Server.on("session", acknowledgePingsOnceClosed);
  http2Server.on("stream", dispatchOrShed);
  return {
    closeNewSessions: () => void http2Server.on("session", (session) => session.close()),
    end: streams.end,
  };
}

/**
 * grpc-js destroys a session, with its calls, when it cannot send a keepalive ping. Node sends none once the session is
 * closed, although its calls are still served.
 */
function acknowledgePingsOnceClosed(session: ServerHttp2Session): void {
  const ping = session.ping.bind(session) as (callback: PingCallback) => boolean;
  session.ping = (callback: unknown) => {
    if (!session.closed) return ping(callback as PingCallback);
    process.nextTick(callback as PingCallback, null, 0, emptyPayload);
    return true;
  };
}

type PingCallback = (error: Error | null, durationMs: number, payload: Buffer) => void;

const emptyPayload = Buffer.alloc(8);

/** Prepares an error response that bypasses grpc-js. Everything except the request id is encoded only once. */
function prepareErrorResponse(error: ApiError): (stream: ServerHttp2Stream) => void {
  const details = prepareResponse((requestId) => toStatusBytes(error, requestId));
  const commonHeaders = {
    ":status": 200,
    "content-type": "application/grpc+proto",
    "grpc-status": Number(grpcStatusOf(error.code)),
    "grpc-message": encodeURI(error.detail),
  };
  return (stream) => {
    const requestId = mintId("req");
    const headers = {
      ...commonHeaders,
      "x-request-id": requestId,
      "grpc-status-details-bin": details(requestId).toString("base64"),
    };
    stream.respond(headers, { endStream: true });
  };
}
