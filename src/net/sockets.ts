import type { ServerResponse } from "node:http";
import { Server, type Socket } from "node:net";
import type { Duplex } from "node:stream";

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

/**
 * Stops accepting connections and keeps the existing ones: the close() of an HTTP server would also end idle ones.
 * Resolves when all connections have ended. It can be called more than once.
 */
export function stopListening(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.once("close", resolve);
    Server.prototype.close.call(server);
  });
}

/** The response in flight on a connection. It is a private field of Node's socket; no public API has it. */
export function responseInFlight(socket: Duplex): ServerResponse | undefined {
  return (socket as Duplex & { readonly _httpMessage?: ServerResponse | null })._httpMessage ?? undefined;
}
