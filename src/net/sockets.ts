import type { Server, Socket } from "node:net";

/** The open connections of a server. A TLS connection is a socket of its own, on top of another. */
export interface SocketSet extends Iterable<Socket> {
  /** Closes connections that have received no bytes. No server counts them as idle, and some wait for them forever. */
  closeUnused(): void;
}

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
  };
}
