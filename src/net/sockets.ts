import type { Server, Socket } from "node:net";
import type { Log } from "../observe/log.js";

/** The open connections of a server. A TLS connection is a socket of its own, on top of another. */
export interface SocketSet extends Iterable<Socket> {
  /** Closes connections that have received no bytes. No server counts them as idle, and some wait for them forever. */
  closeUnused(): void;
  /** Closes the connections that a graceful shutdown could not wait for any longer, and logs their clients. */
  closeAll(log: Log): void;
}

/** The maximum number of clients in a log line. */
const maxLoggedClients = 10;

/** Tracks the connections that a server accepts from now on. */
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
    closeUnused() {
      for (const socket of sockets) if (socket.bytesRead === 0) socket.destroy();
    },
    closeAll(log) {
      const clients = new Set([...sockets].map(({ remoteAddress, remotePort }) => `${remoteAddress}:${remotePort}`));
      if (clients.size === 0) return;
      log.warn(
        { connections: clients.size, clients: [...clients].slice(0, maxLoggedClients) },
        "the graceful shutdown took too long; closing connections with unfinished requests",
      );
      for (const socket of sockets) socket.destroy();
    },
  };
}
