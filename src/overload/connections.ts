// By hand: with several workers, Node 20's own `maxConnections` makes the primary offer a connection that no worker takes
// again and again, as fast as it can.
import type { Server, Socket } from "node:net";
import type { ShedCounter } from "./shed-counter.js";

/** The open connections of a port. */
export interface Connections {
  /** Undefined: it is closed already. */
  of(socket: Pick<Socket, "remoteAddress" | "remotePort">): OpenConnection | undefined;
}

/** What decides which connection is closed when the port is full. The protocol that is spoken on it says so. */
export interface OpenConnection {
  /** By the clock that only runs on, `performance.now()`. */
  lastUsedAt: number;
  /** Whether a call with a valid credential ever came over it. */
  authenticated: boolean;
  /** Whether a call is in flight: such a connection is not closed. */
  isBusy(): boolean;
  close(): void;
}

/** So many connections are chosen at once: a flood of new ones must not have all of them compared each time. */
const chosenAtOnce = 64;

/** For so long nothing is compared again where all were busy. */
const allBusyMs = 100;

/**
 * Limits the connections of a port. When it is full, a new one takes the place of one that is idle: first of one that
 * never brought a valid credential, and of these the one that is idle longest. So nobody can keep others out by
 * connections on which nothing is asked. Where all are busy, the new one is closed.
 */
export function limitConnections(server: Server, most: number, shedding: ShedCounter): Connections {
  const open = new Map<string, OpenConnection>();
  /** The first to close comes last. */
  let chosen: { readonly peer: string; readonly connection: OpenConnection; readonly lastUsedAt: number }[] = [];
  let chooseAgainAt = 0;

  /** Closes the idle connection that is missed least. False: there is none. */
  function closeIdle(): boolean {
    for (;;) {
      const next = chosen.pop() ?? choose();
      if (next === undefined) return false;
      const { peer, connection, lastUsedAt } = next;
      // It may have been used, or closed, since it was chosen.
      if (open.get(peer) !== connection || connection.lastUsedAt !== lastUsedAt || connection.isBusy()) continue;
      open.delete(peer); // at once: its socket closes later
      connection.close();
      return true;
    }
  }

  function choose() {
    const now = performance.now();
    if (now < chooseAgainAt) return undefined;
    chosen = [...open]
      .filter(([, connection]) => !connection.isBusy())
      .map(([peer, connection]) => ({ peer, connection, lastUsedAt: connection.lastUsedAt }))
      .sort((one, other) => rank(one.connection) - rank(other.connection) || one.lastUsedAt - other.lastUsedAt)
      .slice(0, chosenAtOnce)
      .reverse();
    if (chosen.length === 0) chooseAgainAt = now + allBusyMs;
    return chosen.pop();
  }

  server.prependListener("connection", (socket: Socket) => {
    const peer = peerOf(socket);
    if (open.size >= most) {
      shedding.count("connections");
      if (!closeIdle()) {
        socket.destroy();
        return;
      }
    }
    // Until more is known of it, nothing was asked.
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

/** An encrypted connection is a socket of its own, over another: what they have in common is who is at the other end. */
function peerOf({ remoteAddress, remotePort }: Pick<Socket, "remoteAddress" | "remotePort">): string {
  return `${remoteAddress} ${remotePort}`;
}
