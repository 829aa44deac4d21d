import { once } from "node:events";
import { type ClientHttp2Session, type ClientHttp2Stream, connect, type Settings } from "node:http2";
import type { AttackContext } from "../../robustness/attack/site.js";
import type { Target } from "../../robustness/attack/target.js";
import { callHeaders } from "./http2-frames.js";

/** Opens a plain HTTP/2 connection to the gRPC port. It is closed at the end of the attack. */
export async function openSession(
  context: AttackContext,
  { grpcPort }: Target,
  settings: Settings = {},
): Promise<ClientHttp2Session> {
  const session = connect(`http://127.0.0.1:${grpcPort}`, { settings });
  session.on("error", () => {});
  context.addCleanup(() => session.destroy());
  await Promise.race([once(session, "connect"), once(session, "close")]);
  return session;
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

/** The grpc-status of a call, or -1 if it ends without one. */
export async function statusOf(stream: ClientHttp2Stream, timeoutMs = 5_000): Promise<number> {
  let status: unknown;
  for (const event of ["response", "trailers"] as const) {
    stream.on(event, (headers: Record<string, unknown>) => {
      status ??= headers["grpc-status"];
    });
  }
  stream.resume();
  if (!stream.closed) await Promise.race([once(stream, "close"), new Promise((end) => setTimeout(end, timeoutMs))]);
  return Number(status ?? -1);
}
