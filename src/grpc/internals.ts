// The parts of grpc-js 1.14.7 that it does not export. Listed in docs/architecture/library-internals.md.
import type { Http2Server, IncomingHttpHeaders, ServerHttp2Stream, ServerOptions } from "node:http2";
import type { Server } from "@grpc/grpc-js";

interface ServerInternals {
  /** The options that it creates its HTTP/2 servers with. */
  readonly commonServerOptions: ServerOptions;
  /** Its HTTP/2 servers: one per connection injector. */
  readonly http2Servers: ReadonlyMap<Http2Server, unknown>;
}

interface ReadableInternals {
  readonly _readableState: { readonly ended: boolean };
}

/** Lets grpc-js serve a stream. */
export type ServeStream = (
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  flags: number,
  rawHeaders: string[],
) => void;

const internalsOf = (server: Server) => server as unknown as Partial<ServerInternals>;

/** Limits the size and number of request headers of the connection injectors that are created later. */
export function limitHeaderList(server: Server, maxHeaderListSize: number, maxHeaderListPairs: number): void {
  const { commonServerOptions } = internalsOf(server);
  if (typeof commonServerOptions !== "object") throw changed("`commonServerOptions` is not an object");
  commonServerOptions.maxHeaderListPairs = maxHeaderListPairs;
  commonServerOptions.settings = { ...commonServerOptions.settings, maxHeaderListSize };
}

/** The HTTP/2 server of the only connection injector of a grpc-js server, and the listener that served its streams. */
export function takeStreams(server: Server): { readonly http2Server: Http2Server; readonly serveStream: ServeStream } {
  const [http2Server, ...others] = internalsOf(server).http2Servers?.keys() ?? [];
  const [serveStream, ...otherListeners] = http2Server?.listeners("stream") ?? [];
  if (http2Server === undefined || others.length > 0) throw changed("`http2Servers` is not a map with one server");
  if (serveStream === undefined || otherListeners.length > 0) throw changed("`stream` events do not have one listener");
  http2Server.removeAllListeners("stream");
  return { http2Server, serveStream: serveStream as ServeStream };
}

/**
 * Lets Node read from the connection of a stream again, after its `push` has returned false. Node itself calls `_read`
 * only for streams that are read from.
 */
export function startReading(stream: ServerHttp2Stream): void {
  stream._read(0);
}

/** Whether Node has read the end of the request. The public `readableEnded` is set later, when that was emitted. */
export function hasReadEnd(stream: ServerHttp2Stream): boolean {
  return (stream as ServerHttp2Stream & ReadableInternals)._readableState.ended;
}

/** Why grpc-js refuses a call by itself. */
export type GrpcJsErrorCause = "compressed" | "notOneMessage" | "undecodable" | "unknownMethod";

/** How its error messages begin. Errors about messages that never reach grpc-js are not listed. */
const causesByPrefix: readonly (readonly [prefix: string, GrpcJsErrorCause])[] = [
  ["Received message compressed with unsupported encoding", "compressed"],
  ["Received no request message", "notOneMessage"],
  ["Received a second request message", "notOneMessage"],
  ["Error deserializing request", "undecodable"],
  ["The server does not implement the method", "unknownMethod"],
];

/** The cause of an error of grpc-js, by its message. Undefined for errors from other sources. */
export function causeOf(message: string): GrpcJsErrorCause | undefined {
  return causesByPrefix.find(([prefix]) => message.startsWith(prefix))?.[1];
}

/** Thrown at start-up if a new version has changed one of these, and not at the first call. */
function changed(difference: string): Error {
  return new Error(
    `grpc-js is not version 1.14.7: ${difference}. Install that version, or adapt src/grpc/internals.ts.`,
  );
}
