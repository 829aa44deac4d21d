import { once } from "node:events";
import { connect, type Socket } from "node:net";

/** Opens a plain TCP connection to the host of a URL or to `host:port`, and ignores its errors. */
export function openSocket(address: string): Socket {
  const { hostname, port } = new URL(address.includes("://") ? address : `tcp://${address}`);
  return connect(Number(port), hostname).on("error", () => {});
}

/** The same, and waits until it is connected or refused. */
export async function connectSocket(address: string): Promise<Socket> {
  const socket = openSocket(address);
  await new Promise((resolve) => socket.once("connect", resolve).once("close", resolve));
  return socket;
}

/** Waits until a connection is closed. Rejects if it was reset. */
export async function closed(socket: Socket): Promise<void> {
  if (!socket.closed) await once(socket, "close");
}

/** Whether no process accepts connections on this port. */
export async function isRefused(port: number): Promise<boolean> {
  const socket = await connectSocket(`127.0.0.1:${port}`);
  const refused = socket.closed;
  socket.destroy();
  return refused;
}

/** A response as it was sent. */
export interface RawResponse {
  /** 0 if there was no response. */
  readonly status: number;
  /** By name, in lower case; over gRPC with the trailers. */
  readonly headers: Readonly<Record<string, string>>;
  /** The same with every repetition, in their order. */
  readonly headerLines: readonly (readonly [name: string, value: string])[];
  readonly body: Buffer;
}

/** Parses an HTTP/1.1 response. */
export function parseResponse(bytes: Buffer): RawResponse {
  const end = bytes.indexOf("\r\n\r\n");
  const [statusLine = "", ...lines] = bytes.subarray(0, Math.max(0, end)).toString("latin1").split("\r\n");
  const headerLines = lines.map((line) => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const;
  });
  const headers = Object.fromEntries(headerLines);
  const status = Number(statusLine.split(" ")[1] ?? 0);
  const rest = bytes.subarray(end + 4);
  if (status === 100) return parseResponse(rest); // 100 Continue; the final response follows
  const body = headers["transfer-encoding"] === "chunked" ? joinChunks(rest) : rest;
  return { status, headers, headerLines, body };
}

function joinChunks(chunks: Buffer): Buffer {
  const end = chunks.indexOf("\r\n");
  const length = Number.parseInt(chunks.subarray(0, Math.max(0, end)).toString(), 16);
  if (!(length > 0)) return Buffer.alloc(0);
  const begin = end + 2;
  return Buffer.concat([chunks.subarray(begin, begin + length), joinChunks(chunks.subarray(begin + length + 2))]);
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
  await closed(socket);
  return text;
}

/** The status of the first response in a text, or 0 if there is none. */
export function statusOf(text: string): number {
  return Number(/^HTTP\/1\.1 (\d{3})/.exec(text)?.[1] ?? 0);
}

/** Opens a paused connection. It receives bytes only by explicit reads. */
export async function openSlowReader(address: string): Promise<Socket> {
  const socket = await connectSocket(address);
  socket.pause();
  return socket;
}
