import type { IncomingMessage, RequestListener } from "node:http";
import type { Socket } from "node:net";
import type { Limits } from "../overload/limits.js";
import type { MemoryBudget } from "../overload/memory-budget.js";
import { closeAndStopParsing } from "./internals.js";

/**
 * Serves the pipelined requests of a connection one at a time: the next starts once the kernel has accepted the
 * response before it. Node by itself starts all requests that it has read, and buffers their responses although the
 * client has read none of them.
 *
 * So only one request per connection is in flight. It is aborted when its connection closes, and a request whose
 * connection has closed is never started.
 */
export function serveSequentially(
  serve: RequestListener,
  memory: MemoryBudget,
  { maxPipelined }: Limits,
): RequestListener {
  const queuedRequests = new WeakMap<Socket, number>();

  return (request, response) => {
    if (response.socket !== null) {
      serve(request, response);
      return;
    }
    const { socket } = request;
    const queued = queuedRequests.get(socket) ?? 0;
    const reservation = queued < maxPipelined ? memory.accountOf(socket).reserve(requestBytes(request)) : undefined;
    if (reservation === undefined) {
      closeAndStopParsing(socket);
      return;
    }
    queuedRequests.set(socket, queued + 1);
    // Node assigns the socket when it has written the previous response.
    response.once("socket", () => process.nextTick(start));

    function start(): void {
      queuedRequests.set(socket, (queuedRequests.get(socket) ?? 1) - 1);
      reservation?.release();
      if (socket.writable) serve(request, response);
    }
  };
}

/** The memory of Node's objects for a request and its response, without their bytes. */
const objectBytes = 4 * 1024;

/** The memory of a request that waits, or whose response waits, in bytes. */
export function requestBytes({ url = "", rawHeaders }: IncomingMessage): number {
  let bytes = objectBytes + url.length;
  for (const text of rawHeaders) bytes += text.length;
  return bytes;
}
