import type { Http2Server } from "node:http2";
import { toBinary } from "@bufbuild/protobuf";
import { logVerbosity, Server, ServerCredentials, type ServerOptions, setLogVerbosity } from "@grpc/grpc-js";
import { Health } from "../../gen/grpc/health/v1/health_pb.js";
import { ServerReflection } from "../../gen/grpc/reflection/v1/reflection_pb.js";
import type { Certificates } from "../net/certificates.js";
import { type SocketSet, stopListening, trackSockets } from "../net/sockets.js";
import type { AccessLog } from "../observe/access-log.js";
import { memoizeEncoding } from "../rpc/memoize-encoding.js";
import { maxMessageBytes, type Procedure } from "../rpc/pipeline.js";
import { createDispatch } from "./dispatch.js";
import { addHealth } from "./health.js";
import { type Http2Limits, http2ServerOf, limitHeaders, limitServer } from "./http2.js";
import { addReflection } from "./reflection.js";
import { frameMessage } from "./response.js";
import { reloadingCredentials } from "./tls.js";
import { createUnaryHandler } from "./unary.js";

export interface GrpcPortOptions extends Http2Limits {
  readonly procedures: readonly Procedure[];
  /** How the service stands; throws if it cannot serve. */
  readonly readiness: () => Promise<unknown>;
  /** Undefined: the port is not encrypted. */
  readonly certificates: Certificates | undefined;
  /** After how long a connection is asked whether its client is still there. */
  readonly keepaliveMs: number;
  /** After how long a client is asked to connect anew; undefined: never. */
  readonly maxConnectionAgeMs: number | undefined;
  /** Whether server reflection is offered. */
  readonly reflection: boolean;
  /** For how long, once the protocol closes, it waits for clients that have only just connected. */
  readonly lingerMs: number;
  /** How long running calls may take to finish once the protocol closes. */
  readonly drainMs: number;
  readonly logCall: AccessLog;
}

/** The gRPC port. */
export interface GrpcPort {
  /** Opens the port at an address, and says which one it is. */
  listen(address: string, port: number): Promise<number>;
  /** Tells all who watch its health that it is about to close. It still serves. */
  announceEnd(): void;
  /** Accepts no more connections. On those that are open it still serves. */
  stopListening(): void;
  /** Lets running calls finish, until the deadline; a client that does not react cannot hold it up. */
  close(): Promise<void>;
}

/**
 * The gRPC protocol. grpc-js keeps its connections, and serves health and reflection; the procedures are served on its
 * HTTP/2 streams by ourselves.
 */
export function createGrpcPort(options: GrpcPortOptions): GrpcPort {
  const { procedures, readiness, certificates, lingerMs, drainMs, logCall } = options;
  setLogVerbosity(logVerbosity.NONE); // its failures reach us as errors; we say them once
  const server = new Server(limitsOf(options));
  limitHeaders(server, options.limits);
  const oneMessage = { messageBytes: maxMessageBytes, messages: 1, pieces: options.limits.maxMessageChunks };
  const handlers = new Map(
    procedures.map((procedure) => {
      const { output } = procedure.method;
      const write = memoizeEncoding((response) => frameMessage(toBinary(output, response)));
      return [procedure.path, createUnaryHandler(procedure, oneMessage, write, logCall)];
    }),
  );
  const services = [...new Set(procedures.map(({ method }) => method.parent))];
  const health = addHealth(server, services, readiness);
  if (options.reflection) {
    const admits = () => {
      if (options.guard.accepts()) return true;
      options.shedding.count("event_loop");
      return false;
    };
    addReflection(server, [...services, Health, ServerReflection], admits, options.limits.maxReflectionRequests);
  }
  const enter = createDispatch(handlers, options.reflection, options.limits, logCall);

  let listener: { readonly server: Http2Server; readonly sockets: SocketSet } | undefined;

  return {
    async listen(address, port) {
      const place = address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
      const credentials = certificates
        ? reloadingCredentials(certificates, options.limits)
        : ServerCredentials.createInsecure();
      const bound = await new Promise<number>((resolve, reject) => {
        server.bindAsync(place, credentials, (error, port) => {
          if (error) return reject(error);
          // At once: what has connected by then is not limited.
          limitServer(server, options, enter);
          resolve(port);
        });
      });
      const http2Server = http2ServerOf(server);
      listener = { server: http2Server, sockets: trackSockets(http2Server) };
      return bound;
    },
    announceEnd: health.end,
    stopListening() {
      if (listener) void stopListening(listener.server);
    },
    close() {
      health.end();
      // Of who is just connecting, grpc-js knows nothing yet, and would wait for as long as they like to stay.
      listener?.server.on("session", (session) => session.close());
      const unasked = setTimeout(() => listener?.sockets.closeUnasked(), lingerMs);
      return new Promise<void>((resolve) => {
        const timer = setTimeout(() => {
          server.forceShutdown();
          resolve();
        }, drainMs);
        server.tryShutdown(() => {
          clearTimeout(timer);
          resolve();
        });
      }).finally(() => clearTimeout(unasked));
    },
  };
}

/**
 * What one connection may do. grpc-js cannot limit how often a client pings; Node answers pings without asking us, and
 * closes a connection by itself on which a thousand answers are unread.
 */
function limitsOf({ keepaliveMs, maxConnectionAgeMs, drainMs, limits }: GrpcPortOptions): ServerOptions {
  return {
    "grpc.max_receive_message_length": maxMessageBytes,
    "grpc.max_concurrent_streams": limits.maxStreams,
    "grpc.keepalive_time_ms": keepaliveMs,
    "grpc.keepalive_timeout_ms": Math.min(keepaliveMs, longestPingMs),
    ...(maxConnectionAgeMs && { "grpc.max_connection_age_ms": maxConnectionAgeMs }),
    "grpc.max_connection_age_grace_ms": drainMs,
    "grpc.enable_channelz": 0, // nobody is served these figures, and every call would pay for them
  };
}

/** How long a client may take to say that it is still there. */
const longestPingMs = 20_000;
