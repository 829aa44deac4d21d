import { Agent, request } from "node:http";
import { type ClientHttp2Session, connect as connectHttp2, type IncomingHttpHeaders } from "node:http2";
import { connect } from "node:net";
import type { BytesSent, Headers, HttpSent, Sent, StreamSent } from "./raw-request.js";

/** A response of any protocol. */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

/** Connections to a service, opened once for many requests. */
export interface Sender {
  /** Sends a request and returns the response. Throws if there is none in time. */
  send(sent: Sent): Promise<Answer>;
  close(): void;
}

/** Even on a busy machine, a request that takes longer than this hangs. */
const timeoutMs = 25_000;

/** Requests per gRPC connection. */
const maxStreams = 90;

export function createSender({ httpUrl, grpcAddress }: { httpUrl: string; grpcAddress: string }): Sender {
  const agent = new Agent({ keepAlive: true });
  const sessions: ClientHttp2Session[] = [];
  let streams = 0;

  /** Some inputs end the connection. Node also ends a connection after a hundred streams with refused headers. */
  function openSession(): ClientHttp2Session {
    streams += 1;
    const last = sessions.at(-1);
    if (last !== undefined && !last.closed && !last.destroyed && streams <= maxStreams) return last;
    const session = connectHttp2(`http://${grpcAddress}`).on("error", () => {});
    sessions.push(session);
    streams = 1;
    return session;
  }

  return {
    send(sent) {
      if (sent.by === "http") return sendHttp(httpUrl, agent, sent);
      return sent.by === "socket" ? sendBytes(httpUrl, sent) : sendStream(openSession(), sent);
    },
    close() {
      agent.destroy();
      for (const session of sessions) session.destroy();
    },
  };
}

function sendHttp(httpUrl: string, agent: Agent, { verb, path, headers, body, pieces }: HttpSent): Promise<Answer> {
  const { hostname, port } = new URL(httpUrl);
  return withTimeout((resolve, reject) => {
    const names = headers.map(([name]) => name.toLowerCase());
    const length =
      pieces || isBodiless(verb) || names.includes("content-length") ? [] : [["content-length", body.length]];
    // A flat array makes Node send headers unchanged, including duplicates.
    const flat = [["host", `${hostname}:${port}`], ...headers, ...length].flat() as string[];
    const outgoing = request({ hostname, port, agent, method: verb, path, headers: flat });
    outgoing.on("response", (incoming) => {
      incoming.toArray().then((chunks) => {
        const read = Object.entries(incoming.headers).map(([name, value]) => [name, String(value)]);
        resolve({ status: incoming.statusCode ?? 0, headers: Object.fromEntries(read), body: Buffer.concat(chunks) });
      }, reject);
    });
    outgoing.on("error", reject);
    let at = 0;
    for (const length of pieces ?? []) {
      if (length > 0 && at < body.length) outgoing.write(body.subarray(at, at + length));
      at += length;
    }
    if (isBodiless(verb)) outgoing.end();
    else outgoing.end(body.subarray(at));
    return () => outgoing.destroy();
  });
}

function isBodiless(verb: string): boolean {
  return verb === "GET" || verb === "HEAD";
}

function sendBytes(httpUrl: string, { bytes, isTruncated }: BytesSent): Promise<Answer> {
  const { hostname, port } = new URL(httpUrl);
  return withTimeout((resolve) => {
    const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
    const received: Buffer[] = [];
    socket.on("data", (chunk) => received.push(chunk));
    socket.on("error", () => {});
    socket.on("end", () => socket.destroy());
    socket.on("close", () => resolve(parseResponse(Buffer.concat(received))));
    if (isTruncated) socket.end(bytes);
    else socket.write(bytes);
    return () => socket.destroy();
  });
}

/** Parses a raw HTTP/1.1 response. Without a response, the status is 0. */
function parseResponse(wire: Buffer): Answer {
  const end = wire.indexOf("\r\n\r\n");
  const [statusLine = "", ...lines] = wire.subarray(0, Math.max(0, end)).toString("latin1").split("\r\n");
  const headers = Object.fromEntries(
    lines.map((line) => [line.split(":")[0]?.toLowerCase(), line.slice(line.indexOf(":") + 1).trim()]),
  );
  const status = Number(statusLine.split(" ")[1] ?? 0);
  const rest = wire.subarray(end + 4);
  if (status === 100) return parseResponse(rest); // 100 Continue; the final response follows
  return { status, headers, body: headers["transfer-encoding"] === "chunked" ? joinChunks(rest) : rest };
}

function joinChunks(chunks: Buffer): Buffer {
  const end = chunks.indexOf("\r\n");
  const length = Number.parseInt(chunks.subarray(0, Math.max(0, end)).toString(), 16);
  if (!(length > 0)) return Buffer.alloc(0);
  const begin = end + 2;
  return Buffer.concat([chunks.subarray(begin, begin + length), joinChunks(chunks.subarray(begin + length + 2))]);
}

function sendStream(session: ClientHttp2Session, { path, headers, body }: StreamSent): Promise<Answer> {
  return withTimeout((resolve, reject) => {
    const stream = session.request({ ":method": "POST", ":path": path, ...groupByName(headers) });
    let allHeaders: Record<string, string> = {};
    const chunks: Buffer[] = [];
    const addHeaders = (received: IncomingHttpHeaders) => {
      allHeaders = {
        ...allHeaders,
        ...Object.fromEntries(Object.entries(received).map(([name, value]) => [name, String(value)])),
      };
    };
    stream.on("response", addHeaders);
    stream.on("trailers", addHeaders);
    stream.on("data", (chunk) => chunks.push(chunk));
    stream.on("error", reject);
    stream.on("close", () => {
      if (stream.rstCode !== 0 && allHeaders["grpc-status"] === undefined)
        reject(new Error(`the stream was reset: ${stream.rstCode}`));
      else resolve({ status: Number(allHeaders[":status"] ?? 0), headers: allHeaders, body: Buffer.concat(chunks) });
    });
    stream.end(body);
    return () => stream.destroy();
  });
}

/** Node expects all values of a header name in one array. */
function groupByName(headers: Headers): Record<string, string | string[]> {
  const valuesOf = (name: string) => headers.filter(([other]) => other === name).map(([, value]) => value);
  return Object.fromEntries(
    headers.map(([name, value]) => (valuesOf(name).length > 1 ? [name, valuesOf(name)] : [name, value])),
  );
}

function withTimeout(
  begin: (resolve: (response: Answer) => void, reject: (error: Error) => void) => () => void,
): Promise<Answer> {
  let timer: NodeJS.Timeout | undefined;
  const response = new Promise<Answer>((resolve, reject) => {
    const stop = begin(resolve, reject);
    timer = setTimeout(() => {
      stop();
      reject(new Error(`there was no response within ${timeoutMs} ms`));
    }, timeoutMs);
  });
  return response.finally(() => clearTimeout(timer));
}
