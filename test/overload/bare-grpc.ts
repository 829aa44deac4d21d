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
  const path = Buffer.from("/latchkey.v1.KeysService/ListKeys");
  const type = Buffer.from("application/grpc");
  // Authority, POST, http, the path, the content type: names are numbers of HPACK's table.
  const head = [
    Buffer.from([0x01, 1, 0x61, 0x83, 0x86, 0x04, path.length]),
    path,
    Buffer.from([0x0f, 0x10, type.length]),
    type,
  ];
  const reason = Buffer.alloc(4);
  reason.writeUInt32BE(code);
  const frames = Array.from({ length: calls }, (_, call) => [
    frame(1, 4, 2 * call + 1, Buffer.concat(head)),
    frame(3, 0, 2 * call + 1, reason),
  ]);
  return Buffer.concat([
    Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    frame(4, 0, 0, Buffer.alloc(0)),
    ...frames.flat(),
  ]);
}

function frame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}
