// By hand: the libraries for it, like Node's own close(), begin with the connections that are idle, and cut off every
// request that is on its way there.
import type { Socket } from "node:net";
import { setImmediate as immediately, setTimeout as sleep } from "node:timers/promises";
import type { FastifyInstance } from "fastify";
import { responseInFlight, stopListening, trackSockets } from "../net/sockets.js";

/** How long the closing of a protocol may take. */
export interface DrainTimes {
  /** For how long connections are served on that were open when it began. */
  readonly lingerMs: number;
  /** After how long they are cut off, whatever runs there. */
  readonly drainMs: number;
}

/** How soon after its last answer a connection is closed, once nobody is waited for any more. */
const lookEveryMs = 20;

/**
 * Sees to it that the closing of the server cuts off no call, and that no client can hold it up.
 *
 * A connection that is idle here need not be idle for its client, whose next request may be on its way. So the server
 * stops listening first, and goes on serving what comes on the connections that are open. Each answer is now the last
 * one on its connection, and says so: clients under load are gone after one more call. Only what is still open after
 * `lingerMs`, and idle, is closed by us, and what is left after `drainMs` is cut off. Left alone, Fastify would refuse
 * what comes, and wait for as long as a client keeps a connection open on which it never asked.
 *
 * Until the server closes, nothing is done here for a call.
 */
export function drainOnClose(fastify: FastifyInstance, { lingerMs, drainMs }: DrainTimes): void {
  const { server } = fastify;
  const sockets = trackSockets(server);
  let listened = false;
  server.once("listening", () => {
    listened = true;
  });

  /** In a process that was busy, requests may lie there unread: reading comes before judging. */
  async function closeIdle(): Promise<void> {
    await immediately();
    server.closeIdleConnections();
    sockets.closeUnasked();
  }

  fastify.addHook("preClose", async () => {
    if (!listened) return; // nobody can have come, and no end would be told of
    const patience = setTimeout(() => {
      for (const socket of sockets) socket.destroy();
    }, drainMs);
    const allGone = stopListening(server);
    for (const socket of sockets) endWithAnswer(socket);
    const lingering = new AbortController();
    await Promise.race([allGone, sleep(lingerMs, undefined, lingering).catch(() => {})]);
    lingering.abort();
    await closeIdle();
    const looking = setInterval(closeIdle, lookEveryMs);
    // Fastify goes on to close the server, which says so even if all have gone already.
    server.once("close", () => {
      clearInterval(looking);
      clearTimeout(patience);
    });
  });
}

/** Has the answer that is being made here say that it is the last. To what comes later, Fastify does that itself. */
function endWithAnswer(socket: Socket): void {
  const answer = responseInFlight(socket);
  if (answer?.headersSent === false) answer.setHeader("connection", "close");
}
