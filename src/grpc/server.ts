import { type DescMethod, type Message, toBinary } from "@bufbuild/protobuf";
import { logVerbosity, Server, ServerCredentials, type ServerOptions, setLogVerbosity } from "@grpc/grpc-js";
import { Health } from "../../gen/grpc/health/v1/health_pb.js";
import { ServerReflection } from "../../gen/grpc/reflection/v1/reflection_pb.js";
import type { Certificates } from "../net/certificates.js";
import { trackSockets } from "../net/sockets.js";
import type { AccessLog } from "../observe/access-log.js";
import type { Log } from "../observe/log.js";
import { limitConnections } from "../overload/connections.js";
import { memoizeEncoding } from "../rpc/memoize-encoding.js";
import { maxMessageBytes, type Procedure, type StreamProcedure } from "../rpc/pipeline.js";
import { createBidiHandler } from "./bidi.js";
import { createDispatch } from "./dispatch.js";
import { addHealth } from "./health.js";
import { type Http2Limits, limitServer } from "./http2.js";
import { limitHeaderList } from "./internals.js";
import { createListener, listen } from "./listener.js";
import { addReflection } from "./reflection.js";
import { frameMessage } from "./response.js";
import { createTurnShares } from "./turn-shares.js";
import { createUnaryHandler, type HandleStream } from "./unary.js";

export interface GrpcPortOptions extends Http2Limits {
  readonly procedures: readonly Procedure[];
  readonly streams: readonly StreamProcedure[];
  /** The maximum number of open connections of the port. */
  readonly maxConnections: number;
  /** Rejects if the service cannot serve. */
  readonly readiness: () => Promise<unknown>;
  /** Undefined: the port does not use TLS. */
  readonly certificates: Certificates | undefined;
  /** The interval of keepalive pings, which detect clients that are gone. */
  readonly keepaliveMs: number;
  /** The age at which a connection gets a GOAWAY, so that its client reconnects. Undefined: never. */
  readonly maxConnectionAgeMs: number | undefined;
  /** Whether server reflection is offered. */
  readonly reflection: boolean;
  /** How long a shutdown waits for the first request on connections that have just been opened. */
  readonly lingerMs: number;
  /** How long calls in flight may take to finish during shutdown. */
  readonly drainMs: number;
  readonly log: Log;
  readonly logCall: AccessLog;
}

/** The gRPC port. */
export interface GrpcPort {
  /** Opens the port at an address. Resolves to the port number. */
  listen(address: string, port: number): Promise<number>;
  /** Sends NOT_SERVING to all health watchers, before the shutdown. Calls are still served. */
  announceShutdown(): void;
  /** Accepts no more connections. Calls on open connections are still served. */
  stopListening(): void;
  /** Waits for calls in flight, at most `drainMs`. An unresponsive client cannot delay it further. */
  close(): Promise<void>;
}

/**
 * Creates the gRPC port. Its connections are accepted here. grpc-js manages them from then on, and serves health and
 * reflection. This process serves the procedures itself, on the HTTP/2 streams of grpc-js.
 */
export function createGrpcPort(options: GrpcPortOptions): GrpcPort {
  const { procedures, readiness, certificates, limits, lingerMs, drainMs, log, logCall } = options;
  setLogVerbosity(logVerbosity.NONE); // its errors are returned to us, and we log them once
  const server = new Server(limitsOf(options));
  limitHeaderList(server, limits.maxHeaderBytes, limits.maxHeaders);
  const oneMessage = { maxMessageBytes, maxMessages: 1, maxChunks: limits.maxMessageChunks };
  const anyMessages = { ...oneMessage, maxMessages: Number.POSITIVE_INFINITY };
  const acceptsLoad = () => {
    if (options.guard.accepts()) return true;
    options.shedding.count("event_loop");
    return false;
  };
  const encodeFor = ({ output }: DescMethod) =>
    memoizeEncoding((response: Message) => frameMessage(toBinary(output, response)));
  const shares = createTurnShares(maxStreamMessagesPerTurn);
  const handlers = new Map<string, HandleStream>();
  for (const procedure of procedures) {
    const { path, method } = procedure;
    handlers.set(path, createUnaryHandler(procedure, oneMessage, encodeFor(method), logCall));
  }
  for (const procedure of options.streams) {
    const { path, method } = procedure;
    handlers.set(path, createBidiHandler(procedure, anyMessages, encodeFor(method), shares, acceptsLoad, logCall));
  }
  const services = [...new Set([...procedures, ...options.streams].map(({ method }) => method.parent))];
  const health = addHealth(server, services, readiness);
  if (options.reflection) {
    addReflection(server, [...services, Health, ServerReflection], acceptsLoad, limits.maxReflectionRequests);
  }
  // Without TLS for grpc-js, because a connection is injected after its handshake.
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  const listener = createListener(certificates, limits, (connection) => {
    if (!connection.destroyed) injector.injectConnection(connection);
  });
  const sockets = trackSockets(listener);
  const connections = limitConnections(listener, options.maxConnections, options.shedding);
  const limited = limitServer(
    server,
    connections,
    options,
    createDispatch(handlers, options.reflection, limits, logCall),
  );

  return {
    listen: (address, port) => listen(listener, address, port),
    announceShutdown: health.end,
    stopListening: () => void listener.close(),
    async close() {
      health.end();
      const allClosed = new Promise<void>((resolve) => listener.close(() => resolve()));
      // grpc-js sends a GOAWAY on the connections that it knows. Others are just being set up.
      limited.closeNewSessions();
      server.tryShutdown(() => {});
      const lingerTimer = setTimeout(() => sockets.closeUnused(), lingerMs);
      const drainTimer = setTimeout(() => {
        sockets.closeAll(log);
        server.forceShutdown();
      }, drainMs);
      await allClosed;
      clearTimeout(lingerTimer);
      clearTimeout(drainTimer);
      limited.end();
    },
  };
}

/**
 * The limits of one connection. grpc-js cannot limit how often a client pings. Node acknowledges pings without calling
 * us, and closes a connection by itself when a thousand acknowledgements are unread.
 */
function limitsOf({ keepaliveMs, maxConnectionAgeMs, drainMs, limits }: GrpcPortOptions): ServerOptions {
  return {
    "grpc.max_receive_message_length": maxMessageBytes,
    "grpc.max_concurrent_streams": limits.maxStreams,
    "grpc.keepalive_time_ms": keepaliveMs,
    "grpc.keepalive_timeout_ms": Math.min(keepaliveMs, maxPingTimeoutMs),
    ...(maxConnectionAgeMs && { "grpc.max_connection_age_ms": maxConnectionAgeMs }),
    "grpc.max_connection_age_grace_ms": drainMs,
    "grpc.enable_channelz": 0, // not served to anyone, but every call would pay for the statistics
  };
}

/** How many messages on streams of one tenant are processed in one turn: two or three milliseconds of work. */
const maxStreamMessagesPerTurn = 100;

/** The maximum time that a client may take to acknowledge a keepalive ping. */
const maxPingTimeoutMs = 20_000;
