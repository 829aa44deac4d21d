// The parts of HTTP/2 framing (RFC 9113) and HPACK (RFC 7541) that the gRPC load needs.

export const frameType = { data: 0, headers: 1, resetStream: 3, settings: 4, ping: 6, goAway: 7, windowUpdate: 8 };
export const frameFlag = { ack: 0x1, endStream: 0x1, endHeaders: 0x4 };

/** Three bytes of length, type, flags, four bytes of stream id. */
export const frameHeaderLength = 9;

export const emptyBuffer = Buffer.alloc(0);

export function frame(type: number, flags: number, stream: number, payload: Uint8Array): Buffer {
  const bytes = Buffer.alloc(frameHeaderLength + payload.length);
  bytes.writeUIntBE(payload.length, 0, 3);
  bytes.writeUInt8(type, 3);
  bytes.writeUInt8(flags, 4);
  bytes.writeUInt32BE(stream, 5);
  bytes.set(payload, frameHeaderLength);
  return bytes;
}

/** Allows the server to send this many more bytes on the connection. */
export function windowUpdate(bytes: number): Buffer {
  const payload = Buffer.alloc(4);
  payload.writeUInt32BE(bytes);
  return frame(frameType.windowUpdate, 0, 0, payload);
}

/** The client connection preface and empty SETTINGS. */
export const connectionPreface = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  frame(frameType.settings, 0, 0, emptyBuffer),
]);

/** The same with SETTINGS_HEADER_TABLE_SIZE 0, so that the server encodes every header literally. */
export const prefaceWithoutHeaderTable = Buffer.concat([
  connectionPreface.subarray(0, connectionPreface.length - frameHeaderLength),
  frame(frameType.settings, 0, 0, Buffer.from([0, 1, 0, 0, 0, 0])),
]);

/** `grpc-status: 14` in that encoding: the name in HPACK's Huffman code, the value as plain text. */
export const unavailable = Buffer.from([0x88, 0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f, 0x02, 0x31, 0x34]);

/**
 * The HPACK blocks of constant headers. The first call adds them to the connection's dynamic table. Later calls
 * refer to the table by index. The last added entry has index 62.
 */
export function headerBlocks(headers: Readonly<Record<string, string>>): { first: Buffer; later: Buffer } {
  const entries = Object.entries(headers);
  return {
    first: Buffer.concat(entries.flatMap((pair) => [Buffer.from([0x40]), ...pair.map(lengthAndText)])),
    later: Buffer.from(entries.map((_, index) => 0x80 | (61 + entries.length - index))),
  };
}

/** An HPACK string: seven bits of length, the excess in the following byte. */
function lengthAndText(text: string): Buffer {
  const length = Buffer.byteLength(text);
  if (length >= 127 + 128) throw new Error(`the load cannot send a header of ${length} bytes`);
  return Buffer.from([...(length < 127 ? [length] : [127, length - 127]), ...Buffer.from(text)]);
}
