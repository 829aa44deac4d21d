import { Agent, request } from "node:http";
import type { ClientHttp2Session, IncomingHttpHeaders } from "node:http2";
import { connect } from "node:net";
import { openSession } from "./grpc-streams.js";
import type { Headers, RawBytes, RawHttpRequest, RawRequest, RawStream } from "./raw-request.js";
import { parseResponse, type RawResponse } from "./sockets.js";

/** How to send a request other than all at once. */
export interface SendOptions {
  /** The headers are sent at once, the body when this resolves. Not for raw bytes. */
  readonly bodyAfter?: Promise<unknown>;
}

/** Connections to a service, opened once for many requests. */
export interface RawClient {
  /** Sends a request and returns the response. Throws if there is none in time. */
  send(request: RawRequest, options?: SendOptions): Promise<RawResponse>;
  close(): void;
}

/** Even on a busy machine, a request that takes longer than this hangs. */
const timeoutMs = 25_000;

/** Requests per gRPC connection. */
const maxStreams = 90;

export function openRawClient(
  { httpUrl, grpcAddress }: { httpUrl: string; grpcAddress: string },
  maxSockets = Infinity,
): RawClient {
  const agent = new Agent({ keepAlive: true, maxSockets });
  const sessions: ClientHttp2Session[] = [];
  let streams = 0;

  /** Some inputs end the connection. Node also ends a connection after a hundred streams with refused headers. */
  function currentSession(): ClientHttp2Session {
    streams += 1;
    const last = sessions.at(-1);
    if (last !== undefined && !last.closed && !last.destroyed && streams <= maxStreams) return last;
    const session = openSession(grpcAddress);
    sessions.push(session);
    streams = 1;
    return session;
  }

  return {
    send(request, options = {}) {
      if (request.by === "http") return sendHttp(httpUrl, agent, request, options);
      return request.by === "socket" ? sendBytes(httpUrl, request) : sendStream(currentSession(), request, options);
    },
    close() {
      agent.destroy();
      for (const session of sessions) session.destroy();
    },
  };
}

function sendHttp(
  httpUrl: string,
  agent: Agent,
  { verb, path, headers, body, pieces }: RawHttpRequest,
  { bodyAfter }: SendOptions,
): Promise<RawResponse> {
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
        resolve({
          status: incoming.statusCode ?? 0,
          headers: Object.fromEntries(read),
          headerLines: pairs(incoming.rawHeaders),
          body: Buffer.concat(chunks),
        });
      }, reject);
    });
    outgoing.on("error", reject);
    let at = 0;
    for (const length of pieces ?? []) {
      if (length > 0 && at < body.length) outgoing.write(body.subarray(at, at + length));
      at += length;
    }
    if (isBodiless(verb)) outgoing.end();
    else if (bodyAfter === undefined) outgoing.end(body.subarray(at));
    else {
      outgoing.flushHeaders();
      void bodyAfter.then(() => outgoing.end(body.subarray(at)));
    }
    return () => outgoing.destroy();
  });
}

function isBodiless(verb: string): boolean {
  return verb === "GET" || verb === "HEAD";
}

function sendBytes(httpUrl: string, { bytes, isTruncated }: RawBytes): Promise<RawResponse> {
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

function sendStream(
  session: ClientHttp2Session,
  { path, headers, body }: RawStream,
  { bodyAfter }: SendOptions,
): Promise<RawResponse> {
  return withTimeout((resolve, reject) => {
    const stream = session.request({ ":method": "POST", ":path": path, ...groupByName(headers) });
    const allHeaders: Record<string, string> = {};
    const headerLines: (readonly [string, string])[] = [];
    const chunks: Buffer[] = [];
    // The third argument, which the types lack, has the headers in the order in which they arrived.
    const addHeaders = (...[received, , lines]: unknown[]) => {
      for (const [name, value] of Object.entries(received as IncomingHttpHeaders)) allHeaders[name] = String(value);
      headerLines.push(...pairs(lines as string[]));
    };
    stream.on("response", addHeaders);
    stream.on("trailers", addHeaders);
    stream.on("data", (chunk) => chunks.push(chunk));
    stream.on("error", reject);
    stream.on("close", () => {
      const status = Number(allHeaders[":status"] ?? 0);
      if (stream.rstCode !== 0 && allHeaders["grpc-status"] === undefined)
        reject(new Error(`the stream was reset: ${stream.rstCode}`));
      else resolve({ status, headers: allHeaders, headerLines, body: Buffer.concat(chunks) });
    });
    if (bodyAfter === undefined) stream.end(body);
    else void bodyAfter.then(() => stream.end(body));
    return () => stream.destroy();
  });
}

/** Node's flat list of headers as pairs. */
function pairs(flat: readonly string[]): (readonly [string, string])[] {
  return flat.flatMap((name, index) => (index % 2 === 0 ? [[name.toLowerCase(), flat[index + 1] ?? ""] as const] : []));
}

/** Node expects all values of a header name in one array. */
function groupByName(headers: Headers): Record<string, string | string[]> {
  const valuesOf = (name: string) => headers.filter(([other]) => other === name).map(([, value]) => value);
  return Object.fromEntries(
    headers.map(([name, value]) => (valuesOf(name).length > 1 ? [name, valuesOf(name)] : [name, value])),
  );
}

function withTimeout(
  begin: (resolve: (response: RawResponse) => void, reject: (error: Error) => void) => () => void,
): Promise<RawResponse> {
  let timer: NodeJS.Timeout | undefined;
  const response = new Promise<RawResponse>((resolve, reject) => {
    const stop = begin(resolve, reject);
    timer = setTimeout(() => {
      stop();
      reject(new Error(`there was no response within ${timeoutMs} ms`));
    }, timeoutMs);
  });
  return response.finally(() => clearTimeout(timer));
}
