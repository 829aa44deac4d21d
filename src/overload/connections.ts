// Hand-written: with several workers and Node 20's `maxConnections`, the primary offers a connection that no worker
// accepts again and again, in a busy loop.
import type { Server, Socket } from "node:net";
import type { ShedCounter } from "./shed-counter.js";

/** The open connections of a port. */
export interface Connections {
  /** Undefined if the connection is already closed. */
  of(socket: Pick<Socket, "remoteAddress" | "remotePort">): OpenConnection | undefined;
}

/** Determines which connection is closed when the port is full. The server of the protocol sets these fields. */
export interface OpenConnection {
  /** On the monotonic clock, `performance.now()`. */
  lastUsedAt: number;
  /** Whether the connection ever had a call with a valid credential. */
  authenticated: boolean;
  /** Whether a call is in flight. A busy connection is not closed. */
  isBusy(): boolean;
  close(): void;
}

/** How many victims one scan selects, so that a flood of new connections does not sort all of them each time. */
const victimsPerScan = 64;

/** How long no scan takes place after one that found all connections busy. */
const allBusyDelayMs = 100;

/**
 * Limits the connections of a port. When the port is full, a new connection replaces an idle one: first those that
 * never had a valid credential, and of these the one that is idle longest. So idle connections cannot keep other
 * clients out. If all connections are busy, the new one is closed.
 *
 * @param shedding counts the connections that are closed; absent for a port that serves no calls
 */
export function limitConnections(server: Server, maxConnections: number, shedding?: ShedCounter): Connections {
  const open = new Map<string, OpenConnection>();
  /** In reverse order: the first to close is the last element. */
  let victims: { readonly peer: string; readonly connection: OpenConnection; readonly lastUsedAt: number }[] = [];
  let nextScanAt = 0;

  /** Closes the first idle connection in the order of the victims. False if there is none. */
  function closeIdle(): boolean {
    for (;;) {
      const victim = victims.pop() ?? scan();
      if (victim === undefined) return false;
      const { peer, connection, lastUsedAt } = victim;
      // The connection may have been used, or closed, since the scan.
      if (open.get(peer) !== connection || connection.lastUsedAt !== lastUsedAt || connection.isBusy()) continue;
      open.delete(peer); // now, because the socket closes later
      connection.close();
      return true;
    }
  }

  function scan() {
    const now = performance.now();
    if (now < nextScanAt) return undefined;
    victims = [...open]
      .filter(([, connection]) => !connection.isBusy())
      .map(([peer, connection]) => ({ peer, connection, lastUsedAt: connection.lastUsedAt }))
      .sort((one, other) => rank(one.connection) - rank(other.connection) || one.lastUsedAt - other.lastUsedAt)
      .slice(0, victimsPerScan)
      .reverse();
    if (victims.length === 0) nextScanAt = now + allBusyDelayMs;
    return victims.pop();
  }

  server.prependListener("connection", (socket: Socket) => {
    const peer = peerOf(socket);
    if (open.size >= maxConnections) {
      shedding?.count("connections");
      if (!closeIdle()) {
        socket.destroy();
        return;
      }
    }
    // Without a request yet. The server of the protocol replaces these values.
    const connection: OpenConnection = {
      lastUsedAt: performance.now(),
      authenticated: false,
      isBusy: () => false,
      close: () => socket.destroy(),
    };
    open.set(peer, connection);
    socket.once("close", () => {
      if (open.get(peer) === connection) open.delete(peer);
    });
  });

  return { of: (socket) => open.get(peerOf(socket)) };
}

const rank = ({ authenticated }: OpenConnection) => (authenticated ? 1 : 0);

/** A TLS connection is a socket of its own over the TCP socket. The peer's address and port identify both. */
function peerOf({ remoteAddress, remotePort }: Pick<Socket, "remoteAddress" | "remotePort">): string {
  return `${remoteAddress} ${remotePort}`;
}
