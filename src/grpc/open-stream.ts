import { constants, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import { type ApiError, serviceOverloaded } from "../errors.js";
import type { OpenConnection } from "../overload/connections.js";
import type { MemoryAccount, Reservation } from "../overload/memory-budget.js";
import { hasReadEnd, startReading } from "./internals.js";
import { type MessageLimits, type MessageOwner, MessageReader } from "./message-reader.js";

/** The memory of an open stream: its own, that of grpc-js, and a short message in each direction. Measured. */
const streamBytes = 8 * 1_024;

/** The tenant of the memory budget that refused streams are charged to while their clients keep them open. */
const refusedStreams = "(refused streams)";

/** A connection of the gRPC port, and what its streams use of it. */
export interface Connection {
  readonly session: ServerHttp2Session;
  readonly account: MemoryAccount;
  readonly usage: OpenConnection;
  /** The number of open streams; of these, those that need no credential, and those with a valid credential. */
  streams: number;
  publicStreams: number;
  authenticatedStreams: number;
  /** A token bucket of stream resets: the tokens left after the last reset, and the time of it. */
  resetTokens: number;
  lastResetAt: number;
  /** The bytes received when the last ping was acknowledged, and when the unacknowledged ping was sent, if any. */
  bytesAtPing: number;
  pingedAt: number | undefined;
  /** When a check first found its session closed, because a GOAWAY was sent or received. */
  closedSince: number | undefined;
}

/** Receives the messages of a stream in place of grpc-js. */
export interface MessageReceiver {
  /** A complete message has arrived, with its prefix. The caller may not be admitted yet. */
  message(framed: Buffer): void;
  /**
   * The caller is admitted and the client has ended the request.
   *
   * @param isComplete whether no incomplete message is left over
   */
  end(isComplete: boolean): void;
}

type Push = (this: ServerHttp2Stream, chunk: Buffer | null) => boolean;

/** A stream from its headers until it is closed: its memory reservation, its messages and how it is refused. */
export class OpenStream implements MessageOwner {
  readonly startedAt = performance.now();
  /** Responds to the call with an error, unless it has a response. */
  refuse: ((error: ApiError) => void) | undefined;
  /** Called when the stream is closed. */
  onClosed: (() => void) | undefined;
  /** Whether the client may keep it open without a time limit, once its request has arrived. */
  isLongLived = false;
  /** Whether its request has no end and no time limit. */
  isBidirectional = false;
  /** When its time limit began to count. */
  timedSince = this.startedAt;
  isPublic = false;
  isAuthenticated = false;
  /** Whether everything that still arrives is dropped. */
  isDiscarding = false;
  endedByServer = false;
  private isAdmitted = false;
  private requestEnded = false;
  private error: ApiError | undefined;
  /** Whether Node has read the beginning of the request before it emitted the stream. */
  private wasReadEarly = false;
  /** That beginning, until memory is reserved for it. */
  private early: Buffer[] | undefined;
  private reader: MessageReader | undefined;
  private receiver: MessageReceiver | undefined;
  private wantsMore = true;
  private hasDelivered = false;
  private reservation: Reservation | undefined;
  private bufferedBytes = 0;

  constructor(
    readonly stream: ServerHttp2Stream,
    readonly connection: Connection,
    private readonly push: Push,
  ) {}

  /**
   * Reserves the memory of the stream. Returns false if the memory budget is exhausted.
   *
   * @param tenant the tenant to charge, if it is known
   * @param extraBytes the memory in addition to that of every stream
   */
  reserve(tenant: string | undefined, extraBytes = 0): boolean {
    this.reservation = this.connection.account.reserve(streamBytes + extraBytes, tenant);
    if (this.reservation === undefined) return false;
    this.receiveEarly();
    return true;
  }

  /** Charges everything reserved for the stream to its tenant. Returns false if the memory budget is exhausted. */
  assign(tenant: string): boolean {
    return this.reservation === undefined ? this.reserve(tenant) : this.reservation.assign(tenant);
  }

  /** Reserves memory for bytes beyond those that `streamBytes` includes. Returns false if the budget is exhausted. */
  reserveBuffer(bytes: number): boolean {
    this.bufferedBytes += bytes;
    const missing = this.missingBytes(this.bufferedBytes);
    return missing <= 0 || (this.reservation?.grow(missing) ?? false);
  }

  /**
   * Reserves memory for this many bytes instead of all earlier ones, besides an incomplete message. Returns false if the
   * budget is exhausted.
   */
  reserveOnly(bytes: number): boolean {
    this.bufferedBytes = bytes + (this.reader?.heldBytes ?? 0);
    const missing = this.missingBytes(this.bufferedBytes);
    if (missing < -shortMessageBytes)
      this.reservation?.shrink(Math.min(-missing, this.reservation.bytes - streamBytes));
    return missing <= 0 || (this.reservation?.grow(missing) ?? false);
  }

  private missingBytes(bytes: number): number {
    return bytes - shortMessageBytes + streamBytes - (this.reservation?.bytes ?? 0);
  }

  release(): void {
    this.reservation?.release();
  }

  /** The credential of its call is valid. */
  markAuthenticated(): void {
    const { connection } = this;
    this.isAuthenticated = true;
    connection.authenticatedStreams += 1;
    connection.usage.authenticated = true;
  }

  /**
   * Its request has no end, and its caller is authenticated. It does not make its connection busy: otherwise a client
   * could keep all connections of the port for ever.
   */
  markBidirectional(): void {
    this.isBidirectional = true;
    this.connection.usage.authenticated = true;
  }

  /** Its response has an end now, which its client has the usual time to read. */
  markEnded(): void {
    this.isBidirectional = false;
    this.timedSince = performance.now();
  }

  /** Its call needs no credential. Returns false if its connection has the maximum number of such streams. */
  markPublic(maxPublicStreams: number): boolean {
    const { connection } = this;
    if (connection.publicStreams >= maxPublicStreams) return false;
    this.isPublic = true;
    connection.publicStreams += 1;
    return true;
  }

  /**
   * Starts to read messages, within limits. What has reached the service before this is dropped.
   *
   * @param receiver gets the messages; without one, grpc-js reads them from the stream
   */
  readMessages(limits: MessageLimits, receiver?: MessageReceiver): void {
    this.reader = new MessageReader(limits, this);
    this.receiver = receiver;
    const { stream } = this;
    if (receiver === undefined && hasReadEnd(stream)) return; // grpc-js finds the whole request in the buffer of Node
    if (stream.readableLength > 0) this.readEarly();
    if (hasReadEnd(stream)) this.requestEnded = true;
  }

  /**
   * Reads what Node has read before it emitted the stream: with TLS, this may be a whole request. Node stops reading at a
   * message while a write is in progress. Afterwards it reads on, and emits the streams that begin there when it has read
   * everything.
   */
  private readEarly(): void {
    this.wasReadEarly = true;
    this.early = [];
    const first: Buffer = this.stream.read(); // more may arrive meanwhile
    this.early.unshift(first);
    if (this.reservation !== undefined) this.receiveEarly();
  }

  private receiveEarly(): void {
    const { early } = this;
    this.early = undefined;
    for (const chunk of early ?? []) this.receive(chunk);
  }

  deliver(message: Buffer): void {
    this.hasDelivered = true;
    if (this.receiver === undefined) this.wantsMore = this.push.call(this.stream, message);
    else this.receiver.message(message);
    if (this.isBidirectional) this.connection.usage.lastUsedAt = performance.now();
  }

  /** Handles a chunk of the request. Returns whether Node may read more. */
  receive(chunk: Buffer): boolean {
    if (this.reader === undefined) return true;
    if (this.early !== undefined) {
      this.early.push(chunk);
      return true;
    }
    this.wantsMore = true;
    const error = this.reader.read(chunk);
    if (error === "memory exhausted") this.end(serviceOverloaded());
    else if (error !== undefined) this.endOnceAdmitted(error);
    return this.wantsMore && !this.isWaitingForAdmission();
  }

  /**
   * Whether Node must stop reading until the caller is admitted, so that its client sends no more than the flow control window
   * of the stream. Without early data, Node reads on only when the stream is resumed.
   */
  private isWaitingForAdmission(): boolean {
    return this.wasReadEarly && !this.isAdmitted && !this.isDiscarding && this.receiver !== undefined;
  }

  /** Accepts no more than the flow control window of the stream, until `resume` is called. */
  pause(): void {
    this.wantsMore = false;
  }

  resume(): void {
    if (!this.stream.destroyed) startReading(this.stream);
  }

  /** Errors in a message are returned only to callers that may send it. */
  private endOnceAdmitted(error: ApiError): void {
    this.reader = undefined;
    this.error = error;
    if (this.isAdmitted) this.end(error);
  }

  /** Handles the end of the request. */
  receiveEnd(): boolean {
    // Recorded, because a reader that is set later would not learn of the end.
    this.requestEnded = true;
    // Node also reports the end of a closed stream. Its client may have reset it, so nothing is performed.
    if (this.isDiscarding || this.stream.closed) this.push.call(this.stream, null);
    else if (this.isAdmitted) this.forwardEnd();
    if (this.stream.closed) this.destroyLater();
    return false;
  }

  /**
   * Ends a stream that its client has reset with NO_ERROR. Node by itself waits until the client has read the response, and so
   * keeps the stream as long as its connection. Deferred, because Node still uses the stream when it reports the reset.
   */
  private destroyLater(): void {
    const { stream } = this;
    if (!stream.destroyed) setImmediate(() => stream.destroy());
  }

  private forwardEnd(): void {
    this.push.call(this.stream, null);
    if (this.reader !== undefined) this.receiver?.end(this.reader.isBetweenMessages);
  }

  /** Lets the messages be processed. Returns false if an earlier message is invalid and the stream is refused. */
  admit(): boolean {
    this.isAdmitted = true;
    if (this.error !== undefined) {
      this.end(this.error);
      return false;
    }
    if (this.receiver !== undefined) {
      this.readOn();
    }
    if (this.requestEnded) this.forwardEnd();
    return !this.isDiscarding;
  }

  private readOn(): void {
    this.stream.resume();
    // Node takes an early read for one that is still in progress, and begins no other.
    if (this.wasReadEarly && this.wantsMore) this.resume();
  }

  /**
   * Reads and drops the rest of a refused call. If the rest were not read, Node would reset the stream at once. Some
   * clients then lose the response, or cannot send the rest of their request.
   */
  discard(): void {
    if (this.isDiscarding) return;
    this.isDiscarding = true;
    this.early = undefined;
    this.reader = undefined;
    this.wantsMore = true;
    // The reader's buffer is gone with the reader. Delivered messages stay in memory until the stream is closed.
    if (!this.hasDelivered) this.release();
    this.reserveUntilClosed();
    if (this.requestEnded && !this.isAdmitted) this.push.call(this.stream, null);
    this.readOn();
  }

  /** A refused stream takes memory until its client ends it. If no memory can be reserved, the stream is reset. */
  private reserveUntilClosed(): void {
    if (this.hasDelivered || this.requestEnded || this.reserve(refusedStreams)) return;
    setImmediate(() => this.close());
  }

  /** Closes the stream, unless its client has yet to read the response: Node would wait for that without a time limit. */
  close(): void {
    const { stream } = this;
    if (stream.closed || (stream.writableEnded && !stream.writableFinished)) return;
    stream.close(constants.NGHTTP2_NO_ERROR);
  }

  /** Ends the stream: with an error if one can still be sent, otherwise with a reset. */
  end(error: ApiError): void {
    const { stream } = this;
    if (stream.closed) {
      stream.destroy();
      return;
    }
    this.endedByServer = true;
    const canRefuse = !stream.headersSent || this.isBidirectional;
    this.discard();
    if (canRefuse) this.refuse?.(error);
    // Without an error code, Node would first wait until the client has read everything that was written.
    else stream.close(constants.NGHTTP2_CANCEL);
  }
}

/** `streamBytes` includes a message of this size in each direction. */
const shortMessageBytes = 1_024;
