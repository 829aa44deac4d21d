// What grpc-js has no setting for is set here, on the HTTP/2 servers that it keeps to itself.
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

/** Inner parts of grpc-js 1.14.7: look at them when it is updated. */
interface Inside {
  /** What its HTTP/2 servers will be made with. */
  readonly commonServerOptions: ServerOptions;
  readonly http2Servers: ReadonlyMap<Http2Server, unknown>;
}

type Serve = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, flags: number, raw: string[]) => void;

/**
 * What is done with a stream before grpc-js gets it.
 *
 * @param goOn hands it to grpc-js
 */
export type Dispatch = (open: OpenStream, headers: IncomingHttpHeaders, raw: RawHeaders, goOn: () => void) => void;

export interface Http2Limits {
  readonly guard: LoadShedder;
  readonly shedding: ShedCounter;
  /** How many connections the port takes. */
  readonly maxConnections: number;
  readonly limits: Limits;
  readonly memory: MemoryBudget;
}

/** Sets how large the head of a call may be. To be done before the server is bound. */
export function limitHeaders(server: Server, { maxHeaderBytes: headBytes, maxHeaders: headers }: Limits): void {
  const { commonServerOptions } = server as unknown as Inside;
  commonServerOptions.maxHeaderListPairs = headers;
  commonServerOptions.settings = { ...commonServerOptions.settings, maxHeaderListSize: headBytes };
}

/**
 * Limits the connections and streams of a server that is bound, and turns calls away that the process has no time for:
 * before grpc-js has done its part, which is most of what a call costs.
 */
export function limitServer(server: Server, options: Http2Limits, enter: Dispatch): void {
  const { guard, shedding, maxConnections, limits, memory } = options;
  const overloaded = prepareAnswer(serviceOverloaded());
  const http2Server = http2ServerOf(server);
  const streams = limitStreams(limits, memory, limitConnections(http2Server, maxConnections, shedding));
  const [serve] = http2Server.listeners("stream") as [Serve];
  http2Server.removeAllListeners("stream");
  http2Server.on("session", streams.begin);
  http2Server.on("stream", ((stream, headers, flags, raw) => {
    const open = streams.of(stream);
    if (open === undefined || stream.closed) return; // taken back in the same breath
    if (!headers[":path"]?.startsWith(alwaysServed) && !guard.accepts()) {
      shedding.count("event_loop");
      overloaded(stream);
      open.discard();
      return;
    }
    enter(open, headers, raw, () => {
      if (open.admit()) serve(stream, headersForGrpcJs(headers), flags, raw);
    });
  }) as Serve);
  http2Server.once("close", streams.end);
}

/** Who asks how the service fares must be told, above all when it fares badly. */
const alwaysServed = `/${Health.typeName}/`;

/** What listens for a server that is bound to an address. */
export function http2ServerOf(server: Server): Http2Server {
  const [http2Server] = (server as unknown as Inside).http2Servers.keys();
  if (http2Server === undefined) throw new Error("the gRPC port is not bound");
  return http2Server;
}

/** Makes what answers a call with a failure, without grpc-js. All but the id is written once. */
function prepareAnswer(failure: ApiError): (stream: ServerHttp2Stream) => void {
  const sample = mintId("req");
  const details = Buffer.from(toStatusBytes(failure, sample));
  const idAt = details.indexOf(sample);
  const same = {
    ":status": 200,
    "content-type": "application/grpc+proto",
    "grpc-status": Number(grpcStatusOf(failure.code)),
    "grpc-message": encodeURI(failure.detail),
  };
  return (stream) => {
    const requestId = mintId("req");
    details.write(requestId, idAt, "latin1");
    const told = { ...same, "x-request-id": requestId, "grpc-status-details-bin": details.toString("base64") };
    stream.respond(told, { endStream: true });
  };
}
