import { grpcFrame } from "./grpc-streams.js";

/** The bytes of a client that begins calls and resets each at once. Node's client would end the stream first. */
export function resetCalls(calls: number, code: number, key: string): Buffer {
  const headers = minimalHeaders(key);
  const frames = Array.from({ length: calls }, (_, call) => [
    frame(1, 4, 2 * call + 1, headers),
    resetCall(2 * call + 1, code),
  ]);
  return Buffer.concat([preface, ...frames.flat()]);
}

/** The bytes of a call with any headers. Node's client refuses to send some of them twice. */
export function callWithHeaders(headers: readonly Header[], body: Buffer): Buffer {
  return Buffer.concat([preface, frame(1, 4, 1, encodeHeaders(headers)), frame(0, 1, 1, body)]);
}

type Header = readonly [name: string, value: string];

/** Encodes headers in HPACK without its tables: each name and value is a literal. */
function encodeHeaders(headers: readonly Header[]): Buffer {
  const common = { ":method": "POST", ":scheme": "http", ":authority": "a", "content-type": "application/grpc" };
  const fields = [...Object.entries(common), ...headers].sort(([one], [other]) => (one < other ? -1 : 1));
  const texts = fields.map(([name, value]) => [Buffer.of(0), ...[name, value].flatMap(lengthAndText)]);
  return Buffer.concat(texts.flat());
}

function lengthAndText(text: string): Buffer[] {
  if (text.length > 126) throw new Error("HPACK encodes such a length in several bytes, which is not implemented");
  return [Buffer.of(text.length), Buffer.from(text, "latin1")];
}

/** The bytes of a client that begins more calls than the server allows. Node's client would wait. */
export function openCalls(calls: number, key: string): Buffer {
  const headers = minimalHeaders(key);
  return Buffer.concat([preface, ...Array.from({ length: calls }, (_, call) => frame(1, 4, 2 * call + 1, headers))]);
}

/** The frames that begin a call with a message, but do not end its request. */
export function beginCall(stream: number, path: string, key: string, message: Buffer): Buffer {
  const headers = encodeHeaders([
    [":path", path],
    ["authorization", `Bearer ${key}`],
    ["te", "trailers"],
  ]);
  return Buffer.concat([frame(1, 4, stream, headers), frame(0, 0, stream, grpcFrame(message))]);
}

/** The frame that resets a call. */
export function resetCall(stream: number, code: number): Buffer {
  const reason = Buffer.alloc(4);
  reason.writeUInt32BE(code);
  return frame(3, 0, stream, reason);
}

/** The bytes that complete such a call with an empty message. */
export function endCall(stream: number): Buffer {
  return frame(0, 1, stream, grpcFrame(Buffer.alloc(0)));
}

/** The bytes that begin calls with these headers and announce a message of this length for each. */
export function callsWithMessage(calls: number, headers: readonly Header[], messageLength: number): Buffer {
  const prefix = grpcFrame(Buffer.alloc(0), 0, messageLength);
  const frames = Array.from({ length: calls }, (_, call) => [
    frame(1, 4, 2 * call + 1, encodeHeaders(headers)),
    frame(0, 0, 2 * call + 1, prefix),
  ]);
  return Buffer.concat([preface, ...frames.flat()]);
}

/** One more message byte for each call, each in a separate DATA frame. */
export function oneByteEach(calls: number): Buffer {
  return Buffer.concat(Array.from({ length: calls }, (_, call) => frame(0, 0, 2 * call + 1, Buffer.of(0))));
}

/** The frames that a server sent on each stream: their types, and the code of a reset. */
export function framesByStream(bytes: Buffer): Map<number, string[]> {
  const frames = new Map<number, string[]>();
  for (let at = 0; at + 9 <= bytes.length; at += 9 + bytes.readUIntBE(at, 3)) {
    const stream = bytes.readUInt32BE(at + 5);
    const type = bytes.readUInt8(at + 3);
    const description = type === 3 ? `reset ${bytes.readUInt32BE(at + 9)}` : `frame ${type}`;
    if (stream > 0) frames.set(stream, [...(frames.get(stream) ?? []), description]);
  }
  return frames;
}

/** The encoded headers of a minimal call. */
function minimalHeaders(key: string): Buffer {
  return encodeHeaders([
    [":path", "/latchkey.v1.KeysService/ListKeys"],
    ["authorization", `Bearer ${key}`],
  ]);
}

/** The HTTP/2 connection preface with an empty SETTINGS frame. */
export const preface = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  frame(4, 0, 0, Buffer.alloc(0)),
]);

export function frame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const frameHeader = Buffer.alloc(9);
  frameHeader.writeUIntBE(payload.length, 0, 3);
  frameHeader.writeUInt8(type, 3);
  frameHeader.writeUInt8(flags, 4);
  frameHeader.writeUInt32BE(stream, 5);
  return Buffer.concat([frameHeader, payload]);
}
