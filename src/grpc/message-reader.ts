import { type ApiError, invalidInput, payloadTooLarge, unsupportedCompression } from "../errors.js";

/** Limits on the messages of one stream. */
export interface MessageLimits {
  /** The maximum size of each message, without its prefix. */
  readonly maxMessageBytes: number;
  /** How many messages are processed. One more is still delivered, so that the owner notices; the rest is dropped. */
  readonly maxMessages: number;
  /** The maximum number of chunks in which each message may arrive. */
  readonly maxChunks: number;
}

/** The owner of a reader: provides the memory and receives the messages. */
export interface MessageOwner {
  /** Reserves memory for buffered bytes. Returns false if the memory budget is exhausted. */
  reserveBuffer(bytes: number): boolean;
  /** Receives each complete message, with its prefix. */
  deliver(message: Buffer): void;
}

/** The prefix of each message: a flag that says whether it is compressed, and its length. */
export const prefixBytes = 5;

/**
 * The memory that a chunk takes beyond its bytes, as an object of its own: 115 to 400 bytes were measured. A message
 * that arrives whole is one chunk. One that arrives in many chunks is copied into one buffer.
 */
const chunkOverheadBytes = 400;

/**
 * A chunk is a view of everything that was read from the connection at once, and keeps all of it alive. A message that
 * would keep more than this alive beyond its own bytes is copied.
 */
const maxRetainedBytes = 4_096;

/** The initial size of the buffer that collects a message. The buffer doubles as often as necessary. */
const initialBufferBytes = 1_024;

/**
 * Assembles the messages of a stream from its chunks, and delivers only complete ones. An incomplete message therefore
 * takes its own bytes, however many chunks it arrived in, and grpc-js starts on no message that is refused.
 */
export class MessageReader {
  private buffer: Buffer | undefined;
  private bufferedBytes = 0;
  private chunks = 0;
  private messages = 0;

  constructor(
    private readonly limits: MessageLimits,
    private readonly owner: MessageOwner,
  ) {}

  /** Whether no incomplete message is buffered. */
  get isBetweenMessages(): boolean {
    return this.bufferedBytes === 0;
  }

  /** The memory of the incomplete message. */
  get heldBytes(): number {
    return this.buffer?.length ?? 0;
  }

  /** @returns why the stream is to be refused: an error, or that the memory budget is exhausted */
  read(chunk: Buffer): ApiError | "memory exhausted" | undefined {
    if (++this.chunks > this.limits.maxChunks) return tooManyChunks(this.limits.maxChunks);
    for (let offset = 0; offset < chunk.length; ) {
      if (this.messages > this.limits.maxMessages) return undefined;
      if (this.bufferedBytes === 0 && chunk.length - offset >= prefixBytes) {
        const error = this.prefixError(chunk, offset);
        if (error !== undefined) return error;
        const end = offset + framedLength(chunk, offset);
        if (end <= chunk.length) {
          if (!this.owner.reserveBuffer(end - offset + chunkOverheadBytes)) return "memory exhausted";
          this.complete(end - offset === chunk.length ? chunk : chunk.subarray(offset, end));
          offset = end;
          continue;
        }
      }
      const wanted = this.bufferedBytes < prefixBytes ? prefixBytes : framedLength(this.buffer as Buffer, 0);
      const end = Math.min(chunk.length, offset + wanted - this.bufferedBytes);
      if (!this.growBuffer(end - offset, wanted)) return "memory exhausted";
      const buffer = this.buffer as Buffer;
      chunk.copy(buffer, this.bufferedBytes, offset, end);
      this.bufferedBytes += end - offset;
      offset = end;
      if (this.bufferedBytes < wanted) continue;
      if (wanted === prefixBytes) {
        const error = this.prefixError(buffer, 0);
        if (error !== undefined) return error;
      }
      if (this.bufferedBytes === framedLength(buffer, 0)) {
        this.buffer = undefined;
        this.bufferedBytes = 0;
        this.complete(buffer.subarray(0, wanted));
      }
    }
    return undefined;
  }

  private prefixError(bytes: Buffer, offset: number): ApiError | undefined {
    if (bytes[offset] !== 0) return compressedRequest();
    const { maxMessageBytes } = this.limits;
    const isTooLarge = framedLength(bytes, offset) > prefixBytes + maxMessageBytes;
    return isTooLarge ? payloadTooLarge("body", maxMessageBytes) : undefined;
  }

  private complete(message: Buffer): void {
    this.chunks = 0;
    this.messages += 1;
    const retainsLittle = message.buffer.byteLength - message.length <= maxRetainedBytes;
    this.owner.deliver(retainsLittle ? message : Buffer.from(message));
  }

  private growBuffer(bytes: number, wanted: number): boolean {
    const needed = this.bufferedBytes + bytes;
    const current = this.buffer?.length ?? 0;
    if (needed <= current) return true;
    const capacity = Math.max(
      needed,
      Math.min(Math.max(wanted, initialBufferBytes), Math.max(initialBufferBytes, 2 * current)),
    );
    if (!this.owner.reserveBuffer(capacity - current)) return false;
    const larger = Buffer.allocUnsafeSlow(capacity);
    this.buffer?.copy(larger, 0, 0, this.bufferedBytes);
    this.buffer = larger;
    return true;
  }
}

/** The length of the message at an offset, with its prefix. */
function framedLength(bytes: Buffer, offset: number): number {
  return prefixBytes + bytes.readUInt32BE(offset + 1);
}

export const compressedRequest = () => unsupportedCompression("grpc-encoding");

const bodyError = (message: string) => invalidInput([{ location: "body", message }]);
const tooManyChunks = (max: number) => bodyError(`arrives in more than ${max} chunks; send larger DATA frames`);
