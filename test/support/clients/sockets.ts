import { once } from "node:events";
import { connect, type Socket } from "node:net";

/** Opens a plain TCP connection and ignores its errors. */
export async function openSocket(port: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  await Promise.race([once(socket, "connect"), once(socket, "close")]);
  return socket;
}

/** Encodes an HTTP/1.1 request. */
export function requestText(
  method: string,
  path: string,
  headers: Readonly<Record<string, string | number>>,
  body = "",
): string {
  const lines = Object.entries({ host: "attack", ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${path} HTTP/1.1\r\n${lines.join("")}\r\n${body}`;
}

/** Encodes a POST request with a JSON body and a bearer token. */
export function postText(
  path: string,
  key: string,
  body: string,
  headers: Readonly<Record<string, string>> = {},
): string {
  const length = Buffer.byteLength(body);
  return requestText("POST", path, { ...jsonHeaders(key), "content-length": length, ...headers }, body);
}

export function jsonHeaders(key: string) {
  return { authorization: `Bearer ${key}`, "content-type": "application/json" };
}

/** Reads until the server closes the connection, or until nothing has arrived for `quietMs`. */
export async function readUntilQuiet(socket: Socket, quietMs = 2_000): Promise<string> {
  let text = "";
  socket.setEncoding("latin1").on("data", (chunk) => {
    text += chunk;
  });
  socket.setTimeout(quietMs, () => socket.destroy());
  if (!socket.closed) await once(socket, "close");
  return text;
}

/** The status of the first response in a text, or 0 if there is none. */
export function statusOf(text: string): number {
  return Number(/^HTTP\/1\.1 (\d{3})/.exec(text)?.[1] ?? 0);
}

/** Opens a paused connection. It receives bytes only by explicit reads. */
export async function openSlowReader(port: number): Promise<Socket> {
  const socket = await openSocket(port);
  socket.pause();
  return socket;
}
