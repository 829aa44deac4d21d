// What grpc-js has no setting for is set here, on the HTTP/2 servers that it keeps to itself.
import type { Http2Server, IncomingHttpHeaders, ServerHttp2Stream, ServerOptions } from "node:http2";
import type { Server } from "@grpc/grpc-js";
import { Health } from "../../gen/grpc/health/v1/health_pb.js";
import { deadlineExceeded, type Failure, grpcStatusOf, serviceOverloaded } from "../errors.js";
import { mintId } from "../ids.js";
import { limitConnections } from "../overload/connections.js";
import type { LoopGuard } from "../overload/event-loop.js";
import type { Limits } from "../overload/limits.js";
import type { Room } from "../overload/room.js";
import type { Shedding } from "../overload/shedding.js";
import { toStatusBytes } from "./status.js";
import { type AnswerStream, watchStreams } from "./stream-limits.js";

/** Inner parts of grpc-js 1.14.7: look at them when it is updated. */
interface Inside {
  /** What its HTTP/2 servers will be made with. */
  readonly commonServerOptions: ServerOptions;
  readonly http2Servers: ReadonlyMap<Http2Server, unknown>;
}

type Serve = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, flags: number, raw: string[]) => void;

/** What is done with a stream before grpc-js gets it. `raw` has all names and values of the head in turn, as they came. */
type Prepare = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, raw: readonly string[]) => void;

export interface Http2Limits {
  readonly guard: LoopGuard;
  readonly shedding: Shedding;
  /** How many connections the port takes. */
  readonly maxConnections: number;
  readonly limits: Limits;
  readonly room: Room;
}

/** Sets how large the head of a call may be. To be done before the server is bound. */
export function limitHeads(server: Server, { headBytes, headers }: Limits): void {
  const { commonServerOptions } = server as unknown as Inside;
  commonServerOptions.maxHeaderListPairs = headers;
  commonServerOptions.settings = { ...commonServerOptions.settings, maxHeaderListSize: headBytes };
}

/**
 * Limits the connections and streams of a server that is bound, and turns calls away that the process has no time for:
 * before grpc-js has done its part, which is most of what a call costs.
 */
export function limitStreams(server: Server, options: Http2Limits, prepare: Prepare): void {
  const { guard, shedding, maxConnections, limits, room } = options;
  const overloaded = prepareAnswer(serviceOverloaded());
  const watch = watchStreams(limits, room, prepareAnswer(deadlineExceeded()), overloaded);
  const http2Server = http2ServerOf(server);
  limitConnections(http2Server, maxConnections, shedding);
  const [serve] = http2Server.listeners("stream") as [Serve];
  http2Server.removeAllListeners("stream");
  http2Server.on("session", watch.greet);
  http2Server.on("stream", ((stream, headers, flags, raw) => {
    if (stream.closed) return; // taken back in the same breath
    if (headers[":path"]?.startsWith(alwaysServed) || guard.admits()) {
      prepare(stream, headers, raw);
      serve(stream, headers, flags, raw);
      if (!stream.headersSent) watch.weigh(stream); // else it is refused, and nobody reads
      return;
    }
    shedding.count("event_loop");
    overloaded(stream);
  }) as Serve);
  http2Server.once("close", watch.end);
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
function prepareAnswer(failure: Failure): AnswerStream {
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
    stream.on("error", () => {}); // the client is gone
    stream.respond(told, { endStream: true });
  };
}
