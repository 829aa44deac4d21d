// As much of HTTP/2's framing (RFC 9113, RFC 7541) as the gRPC load needs.

export const frameType = { data: 0, headers: 1, resetStream: 3, settings: 4, ping: 6, goAway: 7, windowUpdate: 8 };
export const frameFlag = { ack: 0x1, endStream: 0x1, endHeaders: 0x4 };

/** Length in three bytes, type, flags, stream in four. */
export const frameHeadLength = 9;

export const nothing = Buffer.alloc(0);

export function frame(type: number, flags: number, stream: number, payload: Uint8Array): Buffer {
  const bytes = Buffer.alloc(frameHeadLength + payload.length);
  bytes.writeUIntBE(payload.length, 0, 3);
  bytes.writeUInt8(type, 3);
  bytes.writeUInt8(flags, 4);
  bytes.writeUInt32BE(stream, 5);
  bytes.set(payload, frameHeadLength);
  return bytes;
}

/** Lets the server send so many bytes more on the connection. */
export function windowUpdate(bytes: number): Buffer {
  const payload = Buffer.alloc(4);
  payload.writeUInt32BE(bytes);
  return frame(frameType.windowUpdate, 0, 0, payload);
}

/** What a client says first. */
export const opening = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  frame(frameType.settings, 0, 0, nothing),
]);

/** The same, and asks the server to write every header out, in place of numbers that refer to earlier ones. */
export const openingWithoutTable = Buffer.concat([
  opening.subarray(0, opening.length - frameHeadLength),
  frame(frameType.settings, 0, 0, Buffer.from([0, 1, 0, 0, 0, 0])),
]);

/** `grpc-status: 14` as it is then written: the name in HPACK's Huffman code, the value as it is. */
export const unavailable = Buffer.from([0x88, 0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f, 0x02, 0x31, 0x34]);

/**
 * The headers of calls that are alike, as HPACK has them: the first call enters them into the table that the server
 * keeps for the connection, later ones refer to it, the last one entered being number 62.
 */
export function headerBlocks(headers: Readonly<Record<string, string>>): { first: Buffer; later: Buffer } {
  const entries = Object.entries(headers);
  return {
    first: Buffer.concat(entries.flatMap((words) => [Buffer.from([0x40]), ...words.map(lengthAndText)])),
    later: Buffer.from(entries.map((_, index) => 0x80 | (61 + entries.length - index))),
  };
}

/** Seven bits of length; what does not fit goes into the bytes that follow. */
function lengthAndText(text: string): Buffer {
  const length = Buffer.byteLength(text);
  if (length >= 127 + 128) throw new Error(`a header of ${length} bytes is more than the load can send`);
  return Buffer.from([...(length < 127 ? [length] : [127, length - 127]), ...Buffer.from(text)]);
}
