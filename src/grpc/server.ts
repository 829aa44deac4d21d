import type { Http2Server } from "node:http2";
import { type DescMethod, toBinary } from "@bufbuild/protobuf";
import { logVerbosity, Server, ServerCredentials, type ServerOptions, setLogVerbosity } from "@grpc/grpc-js";
import { Health } from "../../gen/grpc/health/v1/health_pb.js";
import { ServerReflection } from "../../gen/grpc/reflection/v1/reflection_pb.js";
import type { Certificates } from "../net/certificates.js";
import { type SocketSet, stopListening, trackSockets } from "../net/sockets.js";
import type { AccessLog } from "../observe/access-log.js";
import { memoizeEncoding } from "../rpc/memoize-encoding.js";
import { maxMessageBytes, type Procedure, type StreamProcedure } from "../rpc/pipeline.js";
import { createBidiHandler } from "./bidi.js";
import { createDispatch } from "./dispatch.js";
import { addHealth } from "./health.js";
import { type Http2Limits, http2ServerOf, limitHeaders, limitServer } from "./http2.js";
import { addReflection } from "./reflection.js";
import { frameMessage } from "./response.js";
import { reloadingCredentials } from "./tls.js";
import { createTurnShares } from "./turn-shares.js";
import { createUnaryHandler, type HandleStream } from "./unary.js";

export interface GrpcPortOptions extends Http2Limits {
  readonly procedures: readonly Procedure[];
  readonly streams: readonly StreamProcedure[];
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
 * Creates the gRPC port. grpc-js manages its connections, and serves health and reflection. This process serves the
 * procedures itself, on the HTTP/2 streams of grpc-js.
 */
export function createGrpcPort(options: GrpcPortOptions): GrpcPort {
  const { procedures, readiness, certificates, lingerMs, drainMs, logCall } = options;
  setLogVerbosity(logVerbosity.NONE); // its errors are returned to us, and we log them once
  const server = new Server(limitsOf(options));
  limitHeaders(server, options.limits);
  const oneMessage = { maxMessageBytes, maxMessages: 1, maxChunks: options.limits.maxMessageChunks };
  const anyMessages = { ...oneMessage, maxMessages: Number.POSITIVE_INFINITY };
  const acceptsLoad = () => {
    if (options.guard.accepts()) return true;
    options.shedding.count("event_loop");
    return false;
  };
  const encodeFor = ({ output }: DescMethod) => memoizeEncoding((response) => frameMessage(toBinary(output, response)));
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
    addReflection(server, [...services, Health, ServerReflection], acceptsLoad, options.limits.maxReflectionRequests);
  }
  const dispatch = createDispatch(handlers, options.reflection, options.limits, logCall);

  let listener: { readonly server: Http2Server; readonly sockets: SocketSet } | undefined;

  return {
    async listen(address, port) {
      const hostAndPort = address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
      const credentials = certificates
        ? reloadingCredentials(certificates, options.limits)
        : ServerCredentials.createInsecure();
      const bound = await new Promise<number>((resolve, reject) => {
        server.bindAsync(hostAndPort, credentials, (error, port) => {
          if (error) return reject(error);
          // In the same tick, because connections accepted earlier would not be limited.
          limitServer(server, options, dispatch);
          resolve(port);
        });
      });
      const http2Server = http2ServerOf(server);
      listener = { server: http2Server, sockets: trackSockets(http2Server) };
      return bound;
    },
    announceShutdown: health.end,
    stopListening() {
      if (listener) void stopListening(listener.server);
    },
    close() {
      health.end();
      // grpc-js does not know connections that are just being set up, and would wait until their clients close them.
      listener?.server.on("session", (session) => session.close());
      const lingerTimer = setTimeout(() => listener?.sockets.closeUnused(), lingerMs);
      return new Promise<void>((resolve) => {
        const drainTimer = setTimeout(() => {
          server.forceShutdown();
          resolve();
        }, drainMs);
        server.tryShutdown(() => {
          clearTimeout(drainTimer);
          resolve();
        });
      }).finally(() => clearTimeout(lingerTimer));
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
