import type { ServerResponse } from "node:http";
import { Server, type Socket } from "node:net";
import type { Duplex } from "node:stream";

/** The connections of a server that are open. An encrypted one is a socket of its own, over another. */
export interface SocketSet extends Iterable<Socket> {
  /** Closes those on which nothing has come yet: no server counts them as idle, and some wait for them for ever. */
  closeUnasked(): void;
}

/** Keeps the connections of a server, from now on. */
export function trackSockets(server: Server): SocketSet {
  const sockets = new Set<Socket>();
  for (const event of ["connection", "secureConnection"]) {
    server.on(event, (socket: Socket) => {
      sockets.add(socket);
      socket.once("close", () => sockets.delete(socket));
    });
  }
  return {
    [Symbol.iterator]: () => sockets.values(),
    closeUnasked() {
      for (const socket of sockets) if (socket.bytesRead === 0) socket.destroy();
    },
  };
}

/**
 * Accepts no more connections, and leaves alone those that there are: the close() of an HTTP server would end the idle
 * ones, too. Resolves when all have ended; can be called again.
 */
export function stopListening(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.once("close", resolve);
    Server.prototype.close.call(server);
  });
}

/** The answer that is being made on a connection, by an inner part of Node: nothing else tells. */
export function responseInFlight(socket: Duplex): ServerResponse | undefined {
  return (socket as Duplex & { readonly _httpMessage?: ServerResponse | null })._httpMessage ?? undefined;
}
