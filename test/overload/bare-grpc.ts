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
