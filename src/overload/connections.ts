// By hand: with several workers, Node 20's own `maxConnections` makes the primary offer a connection that no worker takes
// again and again, as fast as it can.
import type { Server, Socket } from "node:net";
import type { Shedding } from "./shedding.js";

/** Closes connections beyond so many, as soon as they come. Those that are there are served. */
export function limitConnections(server: Server, most: number, shedding: Shedding): void {
  let open = 0;
  server.prependListener("connection", (socket: Socket) => {
    if (open >= most) {
      shedding.count("connections");
      socket.destroy();
      return;
    }
    open += 1;
    socket.once("close", () => {
      open -= 1;
    });
  });
}
