import { type IncomingMessage, ServerResponse } from "node:http";
import { type Limits, timeoutCheckIntervalMs } from "../overload/limits.js";
import type { MemoryBudget } from "../overload/memory-budget.js";
import { callerOf, tenantOf } from "./call.js";
import { requestBytes } from "./pipelining.js";

/** Tracks responses that clients do not read. */
export interface UnreadResponses {
  /** The response class for the server. */
  readonly Response: typeof ServerResponse<IncomingMessage>;
  stop(): void;
}

/**
 * Closes a connection whose client has not read a response in time. The timeout is absolute: reading single bytes does
 * not extend it.
 *
 * The kernel accepts most responses whole, at once. These are not tracked, and each costs one check of its socket. The
 * others are tracked in the order in which they were written, and count against the memory budget.
 */
export function watchUnreadResponses(memory: MemoryBudget, { requestTimeoutMs }: Limits): UnreadResponses {
  const unread = new Map<ServerResponse, number>();

  function track(response: ServerResponse): void {
    const { socket, req } = response;
    if (socket === null || unread.has(response)) return;
    // A large response has its own reservation. This one is for the request and Node's objects.
    const reservation = memory.accountOf(socket).reserve(requestBytes(req), tenantOf({ caller: callerOf(req) }));
    if (reservation === undefined) {
      socket.destroy();
      return;
    }
    unread.set(response, performance.now());
    response.once("close", () => {
      unread.delete(response);
      reservation.release();
    });
  }

  const timer = setInterval(() => {
    const writtenBefore = performance.now() - requestTimeoutMs;
    for (const [{ req }, writtenAt] of unread) {
      if (writtenAt > writtenBefore) break; // in the order in which they were written
      req.socket.destroy();
    }
  }, timeoutCheckIntervalMs).unref();

  class WatchedResponse extends ServerResponse<IncomingMessage> {
    override end(chunk?: unknown, encoding?: unknown, callback?: unknown): this {
      super.end(chunk, encoding as BufferEncoding, callback as () => void);
      if (this.socket !== null && this.socket.writableLength > 0) track(this);
      return this;
    }
  }

  return { Response: WatchedResponse, stop: () => clearInterval(timer) };
}
