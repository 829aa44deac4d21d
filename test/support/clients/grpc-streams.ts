import { once } from "node:events";
import { type ClientHttp2Session, type ClientHttp2Stream, connect, type Settings } from "node:http2";

/** The headers of a call, for plain HTTP/2 clients. */
export function callHeaders(path: string, key: string) {
  const common = { ":method": "POST", "content-type": "application/grpc", te: "trailers" };
  return { ...common, ":path": path, authorization: `Bearer ${key}` };
}

/** A gRPC frame: one byte of flags, the length, the message. */
export function grpcFrame(message: Uint8Array, flags = 0, length = message.length): Buffer {
  const frame = Buffer.alloc(5 + message.length);
  frame.writeUInt8(flags);
  frame.writeUInt32BE(length, 1);
  frame.set(message, 5);
  return frame;
}

/** Opens a plain HTTP/2 connection to a gRPC port, and ignores its errors. */
export function openSession(address: string, settings: Settings = {}): ClientHttp2Session {
  return connect(`http://${address}`, { settings }).on("error", () => {});
}

/** Begins a call. Undefined if the connection is closed. */
export function openStream(
  session: ClientHttp2Session,
  path: string,
  key: string,
  headers: Readonly<Record<string, string>> = {},
): ClientHttp2Stream | undefined {
  if (session.closed || session.destroyed) return undefined;
  const stream = session.request({ ...callHeaders(path, key), ...headers }, { endStream: false });
  stream.on("error", () => {});
  return stream;
}

/** The grpc-status of the trailers, or of the headers in a trailers-only response. NaN if there is none. */
export async function grpcStatusOf(stream: ClientHttp2Stream): Promise<number> {
  const read = collectStatus(stream);
  await once(stream, "close");
  return read();
}

/** The same for a call that may never end, or may have ended already. */
export async function grpcStatusWithin(stream: ClientHttp2Stream, timeoutMs = 5_000): Promise<number> {
  const read = collectStatus(stream);
  if (!stream.closed) await Promise.race([once(stream, "close"), new Promise((end) => setTimeout(end, timeoutMs))]);
  return read();
}

function collectStatus(stream: ClientHttp2Stream): () => number {
  let found: unknown;
  for (const event of ["response", "trailers"] as const) {
    stream.on(event, (headers: Record<string, unknown>) => {
      found ??= headers["grpc-status"];
    });
  }
  stream.resume();
  return () => Number(found);
}
