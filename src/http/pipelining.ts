import type { IncomingMessage, RequestListener } from "node:http";
import type { Socket } from "node:net";
import type { Limits } from "../overload/limits.js";
import type { MemoryBudget } from "../overload/memory-budget.js";

/**
 * Serves the requests of a connection one after the other: the next begins once the response before it has been handed to
 * the kernel. Left to itself, Node begins all that it has read, and keeps their responses, although none was read yet.
 *
 * So each request that runs has its connection to itself: what ends with the connection is told to it, and a request whose
 * connection has ended is not begun.
 */
export function serveInTurn(
  serve: RequestListener,
  memory: MemoryBudget,
  { maxPipelined: pipelined }: Limits,
): RequestListener {
  const waiting = new WeakMap<Socket, number>();

  return (request, response) => {
    if (response.socket !== null) {
      serve(request, response);
      return;
    }
    const { socket } = request;
    const ahead = waiting.get(socket) ?? 0;
    const reservation = ahead < pipelined ? memory.accountOf(socket).reserve(costOf(request)) : undefined;
    if (reservation === undefined) {
      cutOff(socket);
      return;
    }
    waiting.set(socket, ahead + 1);
    // Node assigns the socket when the response before has been written.
    response.once("socket", () => process.nextTick(begin));

    function begin(): void {
      waiting.set(socket, (waiting.get(socket) ?? 1) - 1);
      reservation?.release();
      if (socket.writable) serve(request, response);
    }
  };
}

/**
 * Ends a connection, and has Node look at nothing more that came over it. Left to itself, Node would go through all that it
 * has read, a thousand requests perhaps, and destroy each with an error of its own: by an inner part of Node, its parser is
 * told, as for an upgrade to another protocol, that what follows is not for it.
 */
function cutOff(socket: Socket & { readonly parser?: { onIncoming: () => number } | null }): void {
  if (socket.parser) socket.parser.onIncoming = () => 2;
  socket.destroy();
}

/** What Node makes for a request and its response, without their bytes. */
const objectBytes = 4 * 1024;

/** What a request takes while it waits, or while its response does, in bytes. */
export function costOf({ url = "", rawHeaders }: IncomingMessage): number {
  let bytes = objectBytes + url.length;
  for (const text of rawHeaders) bytes += text.length;
  return bytes;
}
