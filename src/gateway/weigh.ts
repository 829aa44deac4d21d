import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import { serviceOverloaded } from "../errors.js";
import type { Limits } from "../overload/limits.js";
import type { Room } from "../overload/room.js";

/** Has every body that may be large take its place in the room, as it comes and until its request is answered. */
export function weighBodies(serve: RequestListener, room: Room, { bytesAlways }: Limits): RequestListener {
  return (request, response) => {
    if (mayBeLarge(request, bytesAlways)) weigh(request, response, room);
    serve(request, response);
  };
}

/** What comes in chunks does not say how long it will be. */
function mayBeLarge({ headers }: IncomingMessage, small: number): boolean {
  return Number(headers["content-length"]) > small || headers["transfer-encoding"] !== undefined;
}

function weigh(request: IncomingMessage, response: ServerResponse, room: Room): void {
  let weight = 0;

  function came({ length }: Buffer): void {
    weight += length;
    if (room.take(length, weight)) return;
    letGo(); // at once: others that bring something in this turn need not go, too
    request.off("data", came);
    // Whoever collects the body gives up by that, and answers. What nobody collects takes no room.
    if (request.listenerCount("error") > 0) request.emit("error", serviceOverloaded());
  }

  function letGo(): void {
    room.giveBack(weight);
    weight = 0;
  }

  request.pause().on("data", came); // paused: else it would be read from now on, before its reader is there
  response.once("close", letGo);
}
