// Graceful shutdown of the HTTP port. Written by hand: libraries, like Node's own close(), close idle connections
// first, and so break every request that a client is just sending on one.
import type { Server } from "node:http";
import type { Socket } from "node:net";
import { setImmediate as immediately, setTimeout as sleep } from "node:timers/promises";
import type { FastifyInstance } from "fastify";
import { trackSockets } from "../net/sockets.js";
import type { Log } from "../observe/log.js";
import { closeListeningSocket } from "./internals.js";
import { responseInFlight } from "./response-in-flight.js";

/** The timeouts of a graceful shutdown. */
export interface DrainOptions {
  /** How long idle keep-alive connections stay open during shutdown. */
  readonly lingerMs: number;
  /** When the remaining connections are closed, even with requests in flight. */
  readonly drainMs: number;
  readonly log: Log;
}

/** How often idle connections are closed after `lingerMs`. */
const closeIdleIntervalMs = 20;

/**
 * Makes the shutdown graceful: closing the server interrupts no call, and no client can delay it.
 *
 * A connection that is idle here may not be idle for its client, whose next request may be in transit. So the server
 * first stops listening, and still serves requests on open connections. Each response now has `Connection: close`, so
 * that the connections of busy clients end after one more call. Connections that are still open and idle after
 * `lingerMs` are closed. All others are closed after `drainMs`. Fastify by itself would refuse these requests, and
 * would wait for any client that keeps a connection open without ever sending a request.
 *
 * Before the shutdown, this adds no cost to a call.
 */
export function drainOnClose(fastify: FastifyInstance, { lingerMs, drainMs, log }: DrainOptions): void {
  const { server } = fastify;
  const sockets = trackSockets(server);
  const closeIdleConnections = server.closeIdleConnections.bind(server);
  let listened = false;
  server.once("listening", () => {
    listened = true;
  });

  // Fastify and Node call it, too. To Node, a connection is idle when its response has ended, although it is not sent yet. Node
  // cannot close the others alone. So none is closed while a response is being sent, at most for `drainMs`.
  server.closeIdleConnections = () => {
    if (![...sockets].some(({ writableLength }) => writableLength > 0)) closeIdleConnections();
  };

  /** In a busy process, requests may have arrived unread. They are read before a connection counts as idle. */
  async function closeIdle(): Promise<void> {
    await immediately();
    server.closeIdleConnections();
    sockets.closeUnused();
  }

  fastify.addHook("preClose", async () => {
    if (!listened) return; // there are no connections, and the server would emit no "close"
    const drainTimer = setTimeout(() => {
      sockets.closeAll(log);
    }, drainMs);
    const allClosed = stopListening(server);
    for (const socket of sockets) closeAfterResponse(socket);
    const linger = new AbortController();
    await Promise.race([allClosed, sleep(lingerMs, undefined, linger).catch(() => {})]);
    linger.abort();
    await closeIdle();
    const closeIdleTimer = setInterval(closeIdle, closeIdleIntervalMs);
    // Fastify closes the server next. The server then emits "close", even if all connections have already ended.
    server.once("close", () => {
      clearInterval(closeIdleTimer);
      clearTimeout(drainTimer);
    });
  });
}

/**
 * Stops accepting connections and keeps the existing ones. Resolves when all connections have ended. It can be called
 * more than once.
 */
export function stopListening(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.once("close", resolve);
    closeListeningSocket(server);
  });
}

/** Adds `Connection: close` to the response in flight. Fastify adds it to later responses. */
function closeAfterResponse(socket: Socket): void {
  const response = responseInFlight(socket);
  if (response?.headersSent === false) response.setHeader("connection", "close");
}
