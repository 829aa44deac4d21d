import type { Socket } from "node:net";
import type { FastifyInstance } from "fastify";

/**
 * Sees to it that clients cannot hold up the closing of the server. Connections without a running call are closed at
 * once, each other one when its call has been answered, and what is left after `drainMs` is cut off. Left alone, Fastify
 * waits for as long as a client keeps a connection open on which it never asked, or asks nothing more.
 */
export function drainOnClose(server: FastifyInstance, drainMs: number): void {
  const running = new Map<Socket, number>();
  let closing = false;

  const endIfIdle = (socket: Socket) => {
    if (closing && running.get(socket) === 0) socket.destroySoon();
  };
  server.server.on("connection", (socket) => {
    running.set(socket, 0);
    socket.once("close", () => running.delete(socket));
  });
  server.server.on("request", ({ socket }, response) => {
    running.set(socket, (running.get(socket) ?? 0) + 1);
    response.once("close", () => {
      const calls = running.get(socket);
      if (calls === undefined) return; // the connection is gone already
      running.set(socket, calls - 1);
      endIfIdle(socket);
    });
  });

  server.addHook("preClose", async () => {
    closing = true;
    for (const socket of running.keys()) endIfIdle(socket);
    const timer = setTimeout(() => {
      for (const socket of running.keys()) socket.destroy();
    }, drainMs);
    server.server.once("close", () => clearTimeout(timer));
  });
  server.addHook("onSend", async (_request, reply) => {
    if (closing) reply.header("connection", "close");
  });
}
