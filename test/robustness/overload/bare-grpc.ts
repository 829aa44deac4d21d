import { once } from "node:events";
import type { ClientHttp2Stream } from "node:http2";

/** The head of a call, for clients that are nothing but HTTP/2. */
export function callHeaders(path: string, key: string) {
  const same = { ":method": "POST", "content-type": "application/grpc", te: "trailers" };
  return { ...same, ":path": path, authorization: `Bearer ${key}` };
}

/** The status in the trailers, or in the head where there is nothing else. */
export async function grpcStatusOf(stream: ClientHttp2Stream): Promise<number> {
  let found: unknown;
  stream.on("response", (headers) => {
    found ??= headers["grpc-status"];
  });
  stream.on("trailers", (trailers) => {
    found ??= trailers["grpc-status"];
  });
  stream.resume();
  await once(stream, "close");
  return Number(found);
}

/** A message as gRPC sends it. */
export function prefixed(message: Buffer): Buffer {
  const bytes = Buffer.alloc(5 + message.length);
  bytes.writeUInt32BE(message.length, 1);
  message.copy(bytes, 5);
  return bytes;
}

/** The bytes of a client that begins calls and takes each back at once. Node's client would end them first. */
export function callsTakenBack(calls: number, code: number, key: string): Buffer {
  const head = headWith(key);
  const reason = Buffer.alloc(4);
  reason.writeUInt32BE(code);
  const frames = Array.from({ length: calls }, (_, call) => [
    frame(1, 4, 2 * call + 1, head),
    frame(3, 0, 2 * call + 1, reason),
  ]);
  return Buffer.concat([greeting, ...frames.flat()]);
}

/** The bytes of a call with any headers. Node's client would not send some of them twice. */
export function callWithHead(headers: readonly Header[], body: Buffer): Buffer {
  return Buffer.concat([greeting, frame(1, 4, 1, headOf(headers)), frame(0, 1, 1, body)]);
}

type Header = readonly [name: string, value: string];

/** A head in HPACK, without its tables: each name and value is written out. */
function headOf(headers: readonly Header[]): Buffer {
  const same = { ":method": "POST", ":scheme": "http", ":authority": "a", "content-type": "application/grpc" };
  const fields = [...Object.entries(same), ...headers].sort(([one], [other]) => (one < other ? -1 : 1));
  const texts = fields.map(([name, value]) => [Buffer.of(0), ...[name, value].flatMap(lengthAndText)]);
  return Buffer.concat(texts.flat());
}

function lengthAndText(text: string): Buffer[] {
  if (text.length > 126) throw new Error("HPACK writes such a length in several bytes");
  return [Buffer.of(text.length), Buffer.from(text, "latin1")];
}

/** The bytes of a client that begins so many calls at once, whatever it was told. Node's client would wait. */
export function callsLeftOpen(calls: number, key: string): Buffer {
  const head = headWith(key);
  return Buffer.concat([greeting, ...Array.from({ length: calls }, (_, call) => frame(1, 4, 2 * call + 1, head))]);
}

/** The bytes by which such a call is complete, with an empty message. */
export function endOfCall(stream: number): Buffer {
  return frame(0, 1, stream, prefixed(Buffer.alloc(0)));
}

/** The bytes that begin so many calls with these headers, each with a message of this length that is still to come. */
export function callsBegun(calls: number, headers: readonly Header[], messageLength: number): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(messageLength, 1);
  const begun = Array.from({ length: calls }, (_, call) => [
    frame(1, 4, 2 * call + 1, headOf(headers)),
    frame(0, 0, 2 * call + 1, prefix),
  ]);
  return Buffer.concat([greeting, ...begun.flat()]);
}

/** The bytes of one more byte for each of so many calls, in a frame of its own. */
export function oneByteEach(calls: number): Buffer {
  return Buffer.concat(Array.from({ length: calls }, (_, call) => frame(0, 0, 2 * call + 1, Buffer.of(0))));
}

/** What a server said on streams of calls: for each, the types of its frames, and the code of a reset. */
export function saidOnStreams(bytes: Buffer): Map<number, string[]> {
  const said = new Map<number, string[]>();
  for (let at = 0; at + 9 <= bytes.length; at += 9 + bytes.readUIntBE(at, 3)) {
    const stream = bytes.readUInt32BE(at + 5);
    const type = bytes.readUInt8(at + 3);
    const told = type === 3 ? `reset ${bytes.readUInt32BE(at + 9)}` : `frame ${type}`;
    if (stream > 0) said.set(stream, [...(said.get(stream) ?? []), told]);
  }
  return said;
}

/** The head of a call that needs no more than that. */
function headWith(key: string): Buffer {
  return headOf([
    [":path", "/latchkey.v1.KeysService/ListKeys"],
    ["authorization", `Bearer ${key}`],
  ]);
}

/** HTTP/2's preface, and settings without any setting. */
export const greeting = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  frame(4, 0, 0, Buffer.alloc(0)),
]);

export function frame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}
