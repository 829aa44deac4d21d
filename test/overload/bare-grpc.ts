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
export function callsTakenBack(calls: number, code: number): Buffer {
  const head = headOf([[":path", "/latchkey.v1.KeysService/ListKeys"]]);
  const reason = Buffer.alloc(4);
  reason.writeUInt32BE(code);
  const frames = Array.from({ length: calls }, (_, call) => [
    frame(1, 4, 2 * call + 1, head),
    frame(3, 0, 2 * call + 1, reason),
  ]);
  return Buffer.concat([begin, ...frames.flat()]);
}

/** The bytes of a call with any headers. Node's client would not send some of them twice. */
export function callWithHead(headers: readonly Header[], body: Buffer): Buffer {
  return Buffer.concat([begin, frame(1, 4, 1, headOf(headers)), frame(0, 1, 1, body)]);
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

function frame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

const begin = Buffer.concat([Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(4, 0, 0, Buffer.alloc(0))]);
