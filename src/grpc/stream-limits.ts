import { constants, type IncomingHttpHeaders, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import { Health } from "../../gen/grpc/health/v1/health_pb.js";
import { deadlineExceeded } from "../errors.js";
import type { Connections } from "../overload/connections.js";
import { type Limits, timeoutCheckIntervalMs } from "../overload/limits.js";
import type { MemoryBudget } from "../overload/memory-budget.js";
import { type Connection, OpenStream } from "./open-stream.js";

/** Enforces the limits of connections and streams. */
export interface StreamLimits {
  /** Tracks a new connection, and each of its streams before the server's listeners see it. */
  begin(session: ServerHttp2Session): void;
  /** Undefined: the stream is already closed. */
  of(stream: ServerHttp2Stream): OpenStream | undefined;
  /** Stops the timer that checks for timeouts. */
  end(): void;
}

/**
 * The timeout of a ping. Node reports nothing when a client breaks HTTP/2, and keeps the connection open. Such a
 * connection acknowledges no ping, which is how it is detected.
 */
const pingTimeoutMs = 3_000;

/**
 * How long a client may read its last responses after the service has ended the connection. A socket that is closed earlier
 * drops what the client has not received yet.
 */
const closeTimeoutMs = 5_000;

const watchPath = `/${Health.typeName}/${Health.method.watch.name}`;

/** A Watch stream has no time limit once its request has arrived. Other streams have one until they are bidirectional. */
const isWatch = (headers: IncomingHttpHeaders) => headers[":path"] === watchPath;

export function limitStreams(limits: Limits, memory: MemoryBudget, connections: Connections): StreamLimits {
  const openConnections = new Set<Connection>();
  const openStreams = new Map<ServerHttp2Stream, OpenStream>();
  /** Streams that had a response at the last check, but that their clients have not ended. */
  let responded: OpenStream[] = [];

  function beginStream(connection: Connection, stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    stream.on("error", ignore); // the client is gone, or has broken HTTP/2
    if (stream.destroyed) {
      countReset(connection); // the client has already reset it
      return;
    }
    const { push } = stream;
    const open = new OpenStream(stream, connection, push);
    open.isLongLived = isWatch(headers);
    stream.push = (chunk: Buffer | null) => (chunk === null ? open.receiveEnd() : open.receive(chunk));
    openStreams.set(stream, open);
    connection.streams += 1;
    connection.usage.lastUsedAt = open.startedAt;
    stream.on("close", onClose); // `on` is enough: "close" is emitted once
  }

  // All streams share one listener, and have no timer of their own, to keep the cost of a call low.
  function onClose(this: ServerHttp2Stream): void {
    const open = openStreams.get(this);
    if (open === undefined) return;
    const { connection } = open;
    openStreams.delete(this);
    open.release();
    open.onClosed?.();
    connection.streams -= 1;
    if (open.isPublic) connection.publicStreams -= 1;
    if (open.isAuthenticated) connection.authenticatedStreams -= 1;
    const now = performance.now();
    connection.usage.lastUsedAt = now;
    if (open.endedByServer) return;
    // Late resets are not counted. They are deadlines that passed, and the limit of open streams bounds their number.
    if (now - open.startedAt >= limits.resetWithinMs) return;
    // A client can cancel a call with NO_ERROR. Then the stream is aborted before its response ends.
    if (this.rstCode !== constants.NGHTTP2_NO_ERROR || this.aborted) countReset(connection);
  }

  function countReset(connection: Connection): void {
    const now = performance.now();
    const refill = ((now - connection.lastResetAt) / 1_000) * limits.resetsPerSecond;
    connection.resetTokens = Math.min(limits.resetBurst, connection.resetTokens + refill) - 1;
    connection.lastResetAt = now;
    // Deferred until all received data is processed: Node would crash if the session were destroyed meanwhile.
    if (connection.resetTokens < 0) setImmediate(disconnect, connection.session);
  }

  /** Ends streams past the request timeout, including those whose client does not read its response. */
  function endLate(now: number): void {
    for (const open of openStreams.values()) {
      if (open.startedAt > now - limits.requestTimeoutMs) break; // ordered by start time
      if (open.timedSince > now - limits.requestTimeoutMs) continue;
      if (open.isBidirectional || (open.isLongLived && open.stream.readableEnded)) continue;
      open.end(deadlineExceeded());
    }
  }

  /** Closes streams whose client has had time to read the response. The rest of their request is not needed. */
  function endResponded(): void {
    for (const open of responded) open.close();
    responded = [...openStreams.values()].filter(({ stream, isDiscarding }) => isDiscarding || stream.writableFinished);
  }

  /**
   * Ends a session whose GOAWAY was sent or received. Node ends it with its last stream, but does not always notice the end of
   * the socket: it stops reading while a write is in progress. And some clients do not close the connection.
   */
  function endClosed(connection: Connection, now: number): void {
    const { session, usage, streams } = connection;
    connection.closedSince ??= now;
    if (streams === 0) session.destroy();
    const unusedMs = now - Math.max(connection.closedSince, usage.lastUsedAt);
    if (unusedMs > (streams === 0 ? closeTimeoutMs : limits.requestTimeoutMs)) usage.close();
  }

  function endIdle(connection: Connection, now: number): void {
    const { session, usage, streams, pingedAt } = connection;
    if (pingedAt !== undefined && now - pingedAt > pingTimeoutMs) usage.close();
    if (streams > 0 || pingedAt !== undefined) return;
    if (now - usage.lastUsedAt > limits.grpcIdleMs) usage.close();
    if (session.destroyed || now - usage.lastUsedAt < timeoutCheckIntervalMs) return;
    if (session.socket.bytesRead === connection.bytesAtPing) return;
    connection.pingedAt = now;
    session.ping(() => {
      connection.pingedAt = undefined;
      if (!session.destroyed) connection.bytesAtPing = session.socket.bytesRead;
    });
  }

  const timeoutCheck = setInterval(() => {
    const now = performance.now();
    endLate(now);
    endResponded();
    for (const connection of openConnections) {
      const { session } = connection;
      if (session.closed || session.destroyed) endClosed(connection, now);
      else endIdle(connection, now);
    }
  }, timeoutCheckIntervalMs).unref();

  return {
    begin(session) {
      const settingsTimer = setTimeout(() => session.destroy(), limits.headersTimeoutMs).unref();
      session.once("remoteSettings", () => clearTimeout(settingsTimer));
      const usage = connections.of(session.socket);
      if (usage === undefined) {
        session.destroy();
        return;
      }
      const now = performance.now();
      const connection: Connection = {
        session,
        account: memory.accountOf(session),
        usage,
        streams: 0,
        publicStreams: 0,
        authenticatedStreams: 0,
        resetTokens: limits.resetBurst,
        lastResetAt: now,
        bytesAtPing: 0,
        pingedAt: undefined,
        closedSince: undefined,
      };
      // Public streams do not make a connection busy. Otherwise a client without credentials could keep it for ever.
      usage.isBusy = () => connection.authenticatedStreams > 0;
      const { close } = usage;
      usage.close = () => {
        disconnect(session, constants.NGHTTP2_NO_ERROR);
        setImmediate(close); // a session that ended earlier may still wait for its client to close the socket
      };
      openConnections.add(connection);
      session.once("close", () => {
        clearTimeout(settingsTimer);
        openConnections.delete(connection);
      });
      session.prependListener("stream", (stream, headers) =>
        beginStream(connection, stream as ServerHttp2Stream, headers),
      );
    },
    of: (stream) => openStreams.get(stream),
    end: () => clearInterval(timeoutCheck),
  };
}

function disconnect(session: ServerHttp2Session, errorCode: number = constants.NGHTTP2_ENHANCE_YOUR_CALM): void {
  if (session.destroyed) return;
  session.goaway(errorCode);
  session.destroy();
}

function ignore(): void {}
