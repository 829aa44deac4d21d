import type { Socket } from "node:net";
import type { FastifyInstance } from "fastify";

/** Whether the server is closing: then an answer is the last one on its connection, and says so. */
export interface Drain {
  readonly closing: boolean;
}

/** How soon after its last answer a connection is closed. */
const lookEveryMs = 20;

/**
 * Sees to it that clients cannot hold up the closing of the server. Connections without a running call are closed at
 * once, each other one when its call has been answered, and what is left after `drainMs` is cut off. Left alone, Fastify
 * waits for as long as a client keeps a connection open on which it never asked, or asks nothing more. Until the server
 * closes, nothing is done here for a call.
 */
export function drainOnClose(fastify: FastifyInstance, drainMs: number): Drain {
  const { server } = fastify;
  const drain = { closing: false };
  const connections = new Set<Socket>();
  // An encrypted connection is one of its own, over another; only what it has been asked counts as asked.
  for (const event of ["connection", "secureConnection"]) {
    server.on(event, (socket: Socket) => {
      connections.add(socket);
      socket.once("close", () => connections.delete(socket));
    });
  }

  /** Node does not count a connection as idle on which nothing has come yet. */
  const closeIdle = () => {
    server.closeIdleConnections();
    for (const socket of connections) if (socket.bytesRead === 0) socket.destroy();
  };

  fastify.addHook("preClose", async () => {
    drain.closing = true;
    closeIdle();
    const looking = setInterval(closeIdle, lookEveryMs);
    const patience = setTimeout(() => {
      for (const socket of connections) socket.destroy();
    }, drainMs);
    server.once("close", () => {
      clearInterval(looking);
      clearTimeout(patience);
    });
  });
  return drain;
}
