import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Connections, OpenConnection } from "../overload/connections.js";
import { callerOf } from "./call.js";
import { responseInFlight } from "./response-in-flight.js";

/** Tracks which connections of the HTTP port are busy. A connection is idle when no request is in flight on it. */
export function watchConnections(server: Server, connections: Connections): void {
  const trackedConnections = new WeakMap<Socket, OpenConnection>();

  function connectionOf(socket: Socket): OpenConnection | undefined {
    const tracked = trackedConnections.get(socket);
    if (tracked !== undefined) return tracked;
    const connection = connections.of(socket);
    if (connection === undefined) return undefined;
    connection.isBusy = () => responseInFlight(socket) !== undefined;
    trackedConnections.set(socket, connection);
    return connection;
  }

  server.prependListener("request", (request: IncomingMessage, response: ServerResponse) => {
    const connection = connectionOf(request.socket);
    if (connection === undefined) return;
    connection.lastUsedAt = performance.now();
    if (connection.authenticated || request.headers.authorization === undefined) return;
    response.once("finish", () => {
      connection.authenticated ||= callerOf(request) !== undefined;
    });
  });
}
