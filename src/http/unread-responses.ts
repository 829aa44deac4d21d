import { type IncomingMessage, ServerResponse } from "node:http";
import { type Limits, timeoutCheckIntervalMs } from "../overload/limits.js";
import type { MemoryBudget } from "../overload/memory-budget.js";
import { callerOf, tenantOf } from "./call.js";
import { costOf } from "./pipelining.js";

/** Watches the responses that their clients do not read. */
export interface UnreadResponses {
  /** What the server is to make its responses from. */
  readonly Response: typeof ServerResponse<IncomingMessage>;
  end(): void;
}

/**
 * Ends a connection whose client has not read a response in time: an absolute time, which no single byte renews.
 *
 * The kernel takes most responses whole, at once; of these nothing is kept, and each costs one look at its socket. Those that
 * it does not take are kept in the order in which they were written, with what they take in the memory budget.
 */
export function watchUnread(memory: MemoryBudget, { requestTimeoutMs: requestMs }: Limits): UnreadResponses {
  const unread = new Map<ServerResponse, number>();

  function keep(response: ServerResponse): void {
    const { socket, req } = response;
    if (socket === null || unread.has(response)) return;
    // A large response has its own reservation. This is for the rest.
    const reservation = memory.accountOf(socket).reserve(costOf(req), tenantOf({ caller: callerOf(req) }));
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

  const looking = setInterval(() => {
    const before = performance.now() - requestMs;
    for (const [{ req }, since] of unread) {
      if (since > before) break; // in the order in which they were written
      req.socket.destroy();
    }
  }, timeoutCheckIntervalMs).unref();

  class WatchedResponse extends ServerResponse<IncomingMessage> {
    override end(chunk?: unknown, encoding?: unknown, callback?: unknown): this {
      super.end(chunk, encoding as BufferEncoding, callback as () => void);
      if (this.socket !== null && this.socket.writableLength > 0) keep(this);
      return this;
    }
  }

  return { Response: WatchedResponse, end: () => clearInterval(looking) };
}
