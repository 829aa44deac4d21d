import { constants, type IncomingHttpHeaders, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import { Health } from "../../gen/grpc/health/v1/health_pb.js";
import { type ApiError, deadlineExceeded, serviceOverloaded } from "../errors.js";
import type { Connections, OpenConnection } from "../overload/connections.js";
import { type Limits, timeoutCheckIntervalMs } from "../overload/limits.js";
import type { MemoryAccount, MemoryBudget, Reservation } from "../overload/memory-budget.js";
import { type MessageLimits, type MessageOwner, MessageReader } from "./message-reader.js";

/** Keeps connections and streams within the limits. */
export interface StreamLimits {
  /** A connection has begun; so will its streams, before the server hears of them. */
  begin(session: ServerHttp2Session): void;
  /** Undefined: it has ended already. */
  of(stream: ServerHttp2Stream): OpenStream | undefined;
  end(): void;
}

/** What an open stream takes by itself, with what grpc-js makes for it and a short message each way; measured. */
const streamBytes = 8 * 1_024;

/** In whose name memory is reserved for streams that are refused, and that their clients keep open. */
const refusedStreams = "(refused streams)";

/** A connection whose client broke HTTP/2 says nothing of it: Node goes on. It answers no ping, and so it is known. */
const pingMs = 3_000;

interface Connection {
  readonly session: ServerHttp2Session;
  readonly account: MemoryAccount;
  readonly use: OpenConnection;
  /** How many streams are open; of these, how many need no credential, and how many have brought one that is valid. */
  streams: number;
  publicStreams: number;
  calls: number;
  /** How many calls it could take back at once when it last took back one, and when that was. */
  resetsLeft: number;
  resetAt: number;
  /** How many bytes had come when it last answered a ping; and when it was sent one that is not answered. */
  bytesAtPing: number;
  pingedAt: number | undefined;
}

/** What reads the messages of a stream in place of grpc-js. */
export interface MessageReceiver {
  /** A message is whole, with its prefix. The caller may not be admitted yet. */
  message(framed: Buffer): void;
  /**
   * The caller is admitted, and nothing more comes.
   *
   * @param isComplete whether no part of a message is left over
   */
  end(isComplete: boolean): void;
}

type Push = (this: ServerHttp2Stream, piece: Buffer | null) => boolean;

/** A stream, from its head until it is closed: what is held for it, and how it is refused. */
export class OpenStream implements MessageOwner {
  readonly beganAt = performance.now();
  /** Answers the call with a failure, while there is no answer. */
  refuse: ((failure: ApiError) => void) | undefined;
  /** Hears that the stream is closed. */
  closed: (() => void) | undefined;
  /** Whether it is kept for as long as its client likes. */
  lasting = false;
  isPublic = false;
  isAuthenticated = false;
  /** Whether nothing is kept of what comes on it. */
  discards = false;
  endedByUs = false;
  private isAdmitted = false;
  private hasEnded = false;
  private failure: ApiError | undefined;
  private reader: MessageReader | undefined;
  private receiver: MessageReceiver | undefined;
  private wantsMore = true;
  private handedOn = false;
  private reservation: Reservation | undefined;
  private held = 0;

  constructor(
    readonly stream: ServerHttp2Stream,
    readonly connection: Connection,
    private readonly push: Push,
  ) {}

  /**
   * Reserves what the stream takes. False: there is no memory.
   *
   * @param tenant who it is for, once that is known
   * @param more what it takes beyond what every stream takes
   */
  reserve(tenant: string | undefined, more = 0): boolean {
    this.reservation = this.connection.account.reserve(streamBytes + more, tenant);
    return this.reservation !== undefined;
  }

  /** It is known by now who it is for, with all that is held for it. False: there is no memory. */
  assign(tenant: string): boolean {
    return this.reservation === undefined ? this.reserve(tenant) : this.reservation.assign(tenant);
  }

  /** Reserves what is held for the stream beyond what it takes by itself. False: there is no memory. */
  hold(bytes: number): boolean {
    this.held += bytes;
    const more = this.held - shortBytes + streamBytes - (this.reservation?.bytes ?? 0);
    return more <= 0 || (this.reservation?.grow(more) ?? false);
  }

  release(): void {
    this.reservation?.release();
  }

  /** A call with a valid credential has begun on it. */
  authenticated(): void {
    const { connection } = this;
    this.isAuthenticated = true;
    connection.calls += 1;
    connection.use.authenticated = true;
  }

  /** It needs no credential. False: its connection has too many of these. */
  becomePublic(most: number): boolean {
    const { connection } = this;
    if (connection.publicStreams >= most) return false;
    this.isPublic = true;
    connection.publicStreams += 1;
    return true;
  }

  /**
   * What may come on it from now on. Before this, nothing is kept.
   *
   * @param receiver gets the messages; without one, grpc-js reads them from the stream
   */
  readMessages(limits: MessageLimits, receiver?: MessageReceiver): void {
    this.reader = new MessageReader(limits, this);
    this.receiver = receiver;
  }

  handOn(message: Buffer): void {
    this.handedOn = true;
    if (this.receiver === undefined) this.wantsMore = this.push.call(this.stream, message);
    else this.receiver.message(message);
  }

  /** A piece has come. Says whether more may come. */
  take(piece: Buffer): boolean {
    if (this.reader === undefined) return true;
    this.wantsMore = true;
    const failure = this.reader.read(piece);
    if (failure === "no memory") this.end(serviceOverloaded());
    else if (failure !== undefined) this.endOnceAdmitted(failure);
    return this.wantsMore;
  }

  /** What is wrong with a message is not told to whoever may not send it. */
  private endOnceAdmitted(failure: ApiError): void {
    this.reader = undefined;
    this.failure = failure;
    if (this.isAdmitted) this.end(failure);
  }

  /** Nothing more comes. */
  takeEnd(): boolean {
    // Without a reader, whoever comes later would not hear of it.
    this.hasEnded = true;
    // Node tells the end of a stream that is closed, too: its client may have taken it back, and nothing is performed.
    if (this.discards || this.stream.closed) this.push.call(this.stream, null);
    else if (this.isAdmitted) this.passEnd();
    return false;
  }

  private passEnd(): void {
    this.push.call(this.stream, null);
    if (this.reader !== undefined) this.receiver?.end(this.reader.isBetweenMessages);
  }

  /** From now on it is read. False: it was refused for what it brought before. */
  admit(): boolean {
    this.isAdmitted = true;
    if (this.failure !== undefined) {
      this.end(this.failure);
      return false;
    }
    if (this.receiver !== undefined) this.stream.resume();
    if (this.hasEnded) this.passEnd();
    return true;
  }

  /**
   * The call is refused: what comes from now on is read, and nothing of it kept. Were it not read, Node would reset the
   * stream at once, and some clients lose the answer by that, or what they still had to send.
   */
  discard(): void {
    if (this.discards) return;
    this.discards = true;
    this.reader = undefined;
    // What was read so far goes with its reader. What was handed on is held until the stream is closed.
    if (!this.handedOn) this.release();
    this.reserveLingering();
    if (this.hasEnded && !this.isAdmitted) this.push.call(this.stream, null);
    this.stream.resume();
  }

  /** A stream that is answered, but that its client has not ended, still takes memory; without that, it is reset. */
  private reserveLingering(): void {
    const { stream } = this;
    if (this.handedOn || this.hasEnded || this.reserve(refusedStreams)) return;
    setImmediate(() => {
      if (!stream.closed) stream.close(constants.NGHTTP2_NO_ERROR);
    });
  }

  /** Ends the stream, with a failure where it is not too late for one. */
  end(failure: ApiError): void {
    const { stream } = this;
    if (stream.closed) return;
    this.endedByUs = true;
    this.discard();
    if (!stream.headersSent) this.refuse?.(failure);
    // Without an error, it would first wait until all that was written is read.
    else stream.close(constants.NGHTTP2_CANCEL);
  }
}

/** A short message each way is part of what a stream takes. */
const shortBytes = 1_024;

const watchPath = `/${Health.typeName}/${Health.method.watch.name}`;

/** Whether a stream is kept for as long as its client likes: one that waits for news of our health. */
const isLasting = (headers: IncomingHttpHeaders) => headers[":path"] === watchPath;

export function limitStreams(limits: Limits, memory: MemoryBudget, connections: Connections): StreamLimits {
  const sessions = new Set<Connection>();
  const open = new Map<ServerHttp2Stream, OpenStream>();
  /** Those that were answered when this was last looked at, and whose client has not ended them. */
  let answered: OpenStream[] = [];

  function beginStream(connection: Connection, stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    stream.on("error", ignore); // the client is gone, or has broken HTTP/2
    if (stream.destroyed) {
      countReset(connection); // taken back in the same breath
      return;
    }
    const { push } = stream;
    const known = new OpenStream(stream, connection, push);
    known.lasting = isLasting(headers);
    stream.push = (piece: Buffer | null) => (piece === null ? known.takeEnd() : known.take(piece));
    open.set(stream, known);
    connection.streams += 1;
    connection.use.lastUsedAt = known.beganAt;
    stream.on("close", closed); // it closes once by itself
  }

  // One listener for all streams, and no timer for each: every call would pay.
  function closed(this: ServerHttp2Stream): void {
    const known = open.get(this);
    if (known === undefined) return;
    const { connection } = known;
    open.delete(this);
    known.release();
    known.closed?.();
    connection.streams -= 1;
    if (known.isPublic) connection.publicStreams -= 1;
    if (known.isAuthenticated) connection.calls -= 1;
    const now = performance.now();
    connection.use.lastUsedAt = now;
    if (known.endedByUs) return;
    // Whoever waits first has no more under way than the limit of streams allows: those are deadlines that have passed.
    if (now - known.beganAt >= limits.resetWithinMs) return;
    // A client can take a call back without calling it an error: then it ends before its answer does.
    if (this.rstCode !== constants.NGHTTP2_NO_ERROR || this.aborted) countReset(connection);
  }

  function countReset(connection: Connection): void {
    const now = performance.now();
    const allowedAnew = ((now - connection.resetAt) / 1_000) * limits.resetsPerSecond;
    connection.resetsLeft = Math.min(limits.resetBurst, connection.resetsLeft + allowedAnew) - 1;
    connection.resetAt = now;
    // Not before what has arrived is read: Node would end the process over a session that is destroyed meanwhile.
    if (connection.resetsLeft < 0) setImmediate(sendAway, connection.session);
  }

  /** A client that does not read its answer is too late as well. */
  function endLate(now: number): void {
    for (const known of open.values()) {
      if (known.beganAt > now - limits.requestTimeoutMs) break; // in the order in which they began
      if (!known.lasting || !known.stream.readableEnded) known.end(deadlineExceeded());
    }
  }

  /** A client has had time to read its answer: whatever it still sends is of no use. */
  function endAnswered(): void {
    for (const { stream } of answered) if (!stream.closed) stream.close(constants.NGHTTP2_NO_ERROR);
    answered = [...open.values()].filter(({ stream, discards }) => discards || stream.writableFinished);
  }

  function endIdle(connection: Connection, now: number): void {
    const { session, use, streams, pingedAt } = connection;
    if (pingedAt !== undefined && now - pingedAt > pingMs) use.close();
    if (streams > 0 || pingedAt !== undefined) return;
    if (now - use.lastUsedAt > limits.grpcIdleMs) use.close();
    if (
      session.destroyed ||
      now - use.lastUsedAt < timeoutCheckIntervalMs ||
      session.socket.bytesRead === connection.bytesAtPing
    )
      return;
    connection.pingedAt = now;
    session.ping(() => {
      connection.pingedAt = undefined;
      if (!session.destroyed) connection.bytesAtPing = session.socket.bytesRead;
    });
  }

  const looking = setInterval(() => {
    const now = performance.now();
    endLate(now);
    endAnswered();
    for (const connection of sessions) if (!connection.session.destroyed) endIdle(connection, now);
  }, timeoutCheckIntervalMs).unref();

  return {
    begin(session) {
      const impatience = setTimeout(() => session.destroy(), limits.headersTimeoutMs).unref();
      session.once("remoteSettings", () => clearTimeout(impatience));
      const use = connections.of(session.socket);
      if (use === undefined) {
        session.destroy();
        return;
      }
      const now = performance.now();
      const connection: Connection = {
        session,
        account: memory.accountOf(session),
        use,
        streams: 0,
        publicStreams: 0,
        calls: 0,
        resetsLeft: limits.resetBurst,
        resetAt: now,
        bytesAtPing: 0,
        pingedAt: undefined,
      };
      // Streams that need no credential do not keep a connection: anybody could have one open for ever.
      use.isBusy = () => connection.calls > 0;
      const { close } = use;
      use.close = () => {
        sendAway(session, constants.NGHTTP2_NO_ERROR);
        setImmediate(close); // a session that ended before may still wait for its client to close the connection
      };
      sessions.add(connection);
      session.once("close", () => {
        clearTimeout(impatience);
        sessions.delete(connection);
      });
      session.prependListener("stream", (stream, headers) =>
        beginStream(connection, stream as ServerHttp2Stream, headers),
      );
    },
    of: (stream) => open.get(stream),
    end: () => clearInterval(looking),
  };
}

function sendAway(session: ServerHttp2Session, why: number = constants.NGHTTP2_ENHANCE_YOUR_CALM): void {
  if (session.destroyed) return;
  session.goaway(why);
  session.destroy();
}

function ignore(): void {}
