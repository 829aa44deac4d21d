// Sets limits that grpc-js has no option for, on its internal HTTP/2 servers.
import type { Http2Server, IncomingHttpHeaders, ServerHttp2Stream, ServerOptions } from "node:http2";
import type { Server } from "@grpc/grpc-js";
import { Health } from "../../gen/grpc/health/v1/health_pb.js";
import { type ApiError, grpcStatusOf, serviceOverloaded } from "../errors.js";
import { mintId } from "../ids.js";
import { limitConnections } from "../overload/connections.js";
import type { LoadShedder } from "../overload/event-loop.js";
import type { Limits } from "../overload/limits.js";
import type { MemoryBudget } from "../overload/memory-budget.js";
import type { ShedCounter } from "../overload/shed-counter.js";
import { toStatusBytes } from "../rpc/status.js";
import { headersForGrpcJs, type RawHeaders } from "./request-headers.js";
import { limitStreams, type OpenStream } from "./stream-limits.js";

/** Private members of a grpc-js 1.14.7 server. Check them with every update of grpc-js. */
interface ServerInternals {
  /** The options that it creates its HTTP/2 servers with. */
  readonly commonServerOptions: ServerOptions;
  readonly http2Servers: ReadonlyMap<Http2Server, unknown>;
}

type Serve = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, flags: number, rawHeaders: string[]) => void;

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
  /** The maximum number of open connections of the port. */
  readonly maxConnections: number;
  readonly limits: Limits;
  readonly memory: MemoryBudget;
}

/** Limits the size and number of request headers. Must be called before the server is bound. */
export function limitHeaders(server: Server, { maxHeaderBytes, maxHeaders }: Limits): void {
  const { commonServerOptions } = server as unknown as ServerInternals;
  commonServerOptions.maxHeaderListPairs = maxHeaders;
  commonServerOptions.settings = { ...commonServerOptions.settings, maxHeaderListSize: maxHeaderBytes };
}

/**
 * Limits the connections and streams of a bound server, and sheds calls while the event loop is overloaded. It sheds
 * before grpc-js has done its work, which is most of the cost of a call.
 */
export function limitServer(server: Server, options: Http2Limits, dispatch: Dispatch): void {
  const { guard, shedding, maxConnections, limits, memory } = options;
  const respondOverloaded = prepareErrorResponse(serviceOverloaded());
  const http2Server = http2ServerOf(server);
  const streams = limitStreams(limits, memory, limitConnections(http2Server, maxConnections, shedding));
  const [serve] = http2Server.listeners("stream") as [Serve];
  http2Server.removeAllListeners("stream");
  http2Server.on("session", streams.begin);
  http2Server.on("stream", ((stream, headers, flags, rawHeaders) => {
    const open = streams.of(stream);
    if (open === undefined || stream.closed) return; // the client has already reset it
    if (!headers[":path"]?.startsWith(neverShed) && !guard.accepts()) {
      shedding.count("event_loop");
      respondOverloaded(stream);
      open.discard();
      return;
    }
    dispatch(open, headers, rawHeaders, () => {
      if (open.admit()) serve(stream, headersForGrpcJs(headers), flags, rawHeaders);
    });
  }) as Serve);
  http2Server.once("close", streams.end);
}

/** Health checks are never shed: their result matters most under overload. */
const neverShed = `/${Health.typeName}/`;

/** The HTTP/2 server of a bound grpc-js server. */
export function http2ServerOf(server: Server): Http2Server {
  const [http2Server] = (server as unknown as ServerInternals).http2Servers.keys();
  if (http2Server === undefined) throw new Error("the gRPC port is not bound");
  return http2Server;
}

/** Prepares an error response that bypasses grpc-js. Everything except the request id is encoded only once. */
function prepareErrorResponse(error: ApiError): (stream: ServerHttp2Stream) => void {
  const sampleId = mintId("req");
  const details = Buffer.from(toStatusBytes(error, sampleId));
  const idOffset = details.indexOf(sampleId);
  const commonHeaders = {
    ":status": 200,
    "content-type": "application/grpc+proto",
    "grpc-status": Number(grpcStatusOf(error.code)),
    "grpc-message": encodeURI(error.detail),
  };
  return (stream) => {
    const requestId = mintId("req");
    details.write(requestId, idOffset, "latin1");
    const headers = {
      ...commonHeaders,
      "x-request-id": requestId,
      "grpc-status-details-bin": details.toString("base64"),
    };
    stream.respond(headers, { endStream: true });
  };
}
