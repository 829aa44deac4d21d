import type { ClientHttp2Stream } from "node:http2";
import { Http2SessionManager } from "@connectrpc/connect-node";

/**
 * Opens HTTP/2 connections whose errors do not end the process. When a replica shuts down, connect-node 2.1.2 destroys a
 * connection without streams with an error. If a call or `abort` comes before Node emits the error, connect-node has no
 * listener any more, and Node throws the error.
 *
 * @internal
 */
export class SessionManager extends Http2SessionManager {
  override async request(...request: Parameters<Http2SessionManager["request"]>): Promise<ClientHttp2Stream> {
    const stream = await super.request(...request);
    const { session } = stream;
    if (session?.listenerCount("error", ignoreError) === 0) session.on("error", ignoreError);
    return stream;
  }
}

/** connect-node handles the error, too, unless it has given up the connection. */
function ignoreError(): void {}
