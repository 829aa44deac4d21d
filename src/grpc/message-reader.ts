import { type ApiError, invalidInput, payloadTooLarge, unsupportedCompression } from "../errors.js";

/** What the messages of one stream may be. */
export interface MessageLimits {
  /** How large each may be, in bytes. */
  readonly messageBytes: number;
  /** How many are answered. One more is handed on, and nothing after it. */
  readonly messages: number;
  /** In how many pieces they may come, each. */
  readonly pieces: number;
}

/** Whoever has the messages read. */
export interface MessageOwner {
  /** Reserves memory. False: there is none. */
  hold(bytes: number): boolean;
  /** Gets each message when it is whole, with its prefix. */
  handOn(message: Buffer): void;
}

/** Before each message: a flag, whether it is compressed, and its length. */
export const prefixBytes = 5;

/**
 * What a piece takes beyond its bytes, as an object of its own: 115 to 400 bytes were measured. A message that comes
 * whole is one piece; one that comes in many is copied into one.
 */
const pieceCost = 400;

/** A piece is a view of all that was read from the connection at once, and keeps it alive. Beyond this it is copied. */
const othersBytes = 4_096;

/** The first size of what a message is collected in. It doubles as often as it has to. */
const firstBytes = 1_024;

/**
 * Reads the messages of a stream out of the pieces in which they come, and hands on whole ones: so what is held of a
 * message that is not complete are its bytes, however many pieces they came in, and grpc-js begins with none that is
 * refused.
 */
export class MessageReader {
  private collected: Buffer | undefined;
  private filled = 0;
  private pieces = 0;
  private messages = 0;

  constructor(
    private readonly limits: MessageLimits,
    private readonly holder: MessageOwner,
  ) {}

  /** Whether all that came were whole messages. */
  get isBetweenMessages(): boolean {
    return this.filled === 0;
  }

  /** @returns why the stream is to be refused: a failure, or that there is no memory */
  read(piece: Buffer): ApiError | "no memory" | undefined {
    if (++this.pieces > this.limits.pieces) return tooManyPieces(this.limits.pieces);
    for (let at = 0; at < piece.length; ) {
      if (this.messages > this.limits.messages) return undefined;
      if (this.filled === 0 && piece.length - at >= prefixBytes) {
        const failure = this.refusalOf(piece, at);
        if (failure !== undefined) return failure;
        const end = at + sizeOf(piece, at);
        if (end <= piece.length) {
          if (!this.holder.hold(end - at + pieceCost)) return "no memory";
          this.complete(end - at === piece.length ? piece : piece.subarray(at, end));
          at = end;
          continue;
        }
      }
      const wanted = this.filled < prefixBytes ? prefixBytes : sizeOf(this.collected as Buffer, 0);
      const end = Math.min(piece.length, at + wanted - this.filled);
      if (!this.makeRoom(end - at, wanted)) return "no memory";
      const collected = this.collected as Buffer;
      piece.copy(collected, this.filled, at, end);
      this.filled += end - at;
      at = end;
      if (this.filled < wanted) continue;
      if (wanted === prefixBytes) {
        const failure = this.refusalOf(collected, 0);
        if (failure !== undefined) return failure;
      }
      if (this.filled === sizeOf(collected, 0)) {
        this.collected = undefined;
        this.filled = 0;
        this.complete(collected.subarray(0, wanted));
      }
    }
    return undefined;
  }

  private refusalOf(bytes: Buffer, at: number): ApiError | undefined {
    if (bytes[at] !== 0) return compressedRequest();
    const { messageBytes } = this.limits;
    return sizeOf(bytes, at) > prefixBytes + messageBytes ? payloadTooLarge("body", messageBytes) : undefined;
  }

  private complete(message: Buffer): void {
    this.pieces = 0;
    this.messages += 1;
    const alone = message.buffer.byteLength - message.length <= othersBytes;
    this.holder.handOn(alone ? message : Buffer.from(message));
  }

  private makeRoom(bytes: number, wanted: number): boolean {
    const needed = this.filled + bytes;
    const now = this.collected?.length ?? 0;
    if (needed <= now) return true;
    const capacity = Math.max(needed, Math.min(Math.max(wanted, firstBytes), Math.max(firstBytes, 2 * now)));
    if (!this.holder.hold(capacity - now)) return false;
    const larger = Buffer.allocUnsafeSlow(capacity);
    this.collected?.copy(larger, 0, 0, this.filled);
    this.collected = larger;
    return true;
  }
}

function sizeOf(bytes: Buffer, at: number): number {
  return prefixBytes + bytes.readUInt32BE(at + 1);
}

export const compressedRequest = () => unsupportedCompression("grpc-encoding");

const inBody = (message: string) => invalidInput([{ location: "body", message }]);
const tooManyPieces = (most: number) => inBody(`comes in more than ${most} pieces: send it in larger DATA frames`);
