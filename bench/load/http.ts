// Written by hand on plain sockets, because a client that costs as much CPU as the server measures itself. Relative to
// the CPU that bare Fastify uses per call, autocannon 8.0.0 used three quarters and this client two fifths. This client
// also allows every request to differ. Requests are encoded beforehand. A response is parsed only as far as checking it
// requires.
import { connect } from "node:net";
import { createClosedLoop, type Load, UnexpectedResponse } from "./load.js";

/** An encoded request, and the ASCII text that its response must contain besides status 200. */
export interface HttpRequest {
  readonly bytes: Buffer;
  readonly expected: string;
}

export interface HttpLoadOptions {
  readonly port: number;
  /** Each has one request in flight. */
  readonly connections: number;
  /** Returns the next request. Requests may differ. */
  readonly next: () => HttpRequest;
}

/** The bytes of a POST of JSON. */
export function postRequest(path: string, body: unknown, credential: string): Buffer {
  const text = JSON.stringify(body);
  const headers = [
    `POST ${path} HTTP/1.1`,
    "Host: 127.0.0.1",
    `Authorization: Bearer ${credential}`,
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(text)}`,
  ];
  return Buffer.from(`${headers.join("\r\n")}\r\n\r\n${text}`);
}

/** Cycles through the items. */
export function inTurn<T>(items: readonly T[]): () => T {
  let index = 0;
  return () => items[index++ % items.length] as T;
}

export async function openHttpLoad({ port, connections, next }: HttpLoadOptions): Promise<Load> {
  const loop = createClosedLoop();
  const events: HttpConnectionEvents = {
    succeeded(connection) {
      if (loop.succeeded()) connection.send(next());
    },
    failed: loop.failed,
  };
  const httpConnections = await Promise.all(
    Array.from({ length: connections }, () => openHttpConnection(port, events)),
  );
  return {
    run: (seconds) =>
      loop.run(seconds, httpConnections.length, () => {
        for (const connection of httpConnections) connection.send(next());
      }),
    close() {
      for (const connection of httpConnections) connection.close();
    },
  };
}

/** One connection, with at most one request in flight. */
export interface HttpConnection {
  send(request: HttpRequest): void;
  close(): void;
}

export interface HttpConnectionEvents {
  /** The expected response arrived. */
  succeeded(connection: HttpConnection): void;
  failed(error: Error): void;
}

export function openHttpConnection(port: number, { succeeded, failed }: HttpConnectionEvents): Promise<HttpConnection> {
  let expected = "";
  let received = "";
  let closed = false;

  /** latin1 decodes each byte to one character, so string lengths equal byte lengths. */
  function onBytes(length: number, buffer: Uint8Array): boolean {
    received += (buffer as Buffer).toString("latin1", 0, length);
    const totalLength = lengthOf(received);
    if (totalLength === undefined || received.length < totalLength) return true;
    const response = received;
    received = "";
    if (response.length === totalLength && response.startsWith("HTTP/1.1 200 ") && response.includes(expected))
      succeeded(connection);
    else failed(new UnexpectedResponse(`expected 200 with ${expected}; received:\n${response}`));
    return true;
  }

  const socket = connect({
    port,
    host: "127.0.0.1",
    noDelay: true,
    // One reused buffer for all reads costs less than a new buffer per read and Node's stream machinery.
    onread: { buffer: Buffer.allocUnsafe(64 * 1024), callback: onBytes },
  });
  const connection: HttpConnection = {
    send(request) {
      expected = request.expected;
      socket.write(request.bytes);
    },
    close() {
      closed = true;
      socket.destroy();
    },
  };
  return new Promise((resolve, reject) => {
    socket.once("connect", () => resolve(connection));
    socket.on("error", (error) => {
      reject(error);
      failed(error);
    });
    socket.once("close", () => closed || failed(new UnexpectedResponse("the server closed a connection")));
  });
}

/**
 * The total length of a response, once its headers have arrived. NaN, which equals no length, if there is no
 * Content-Length.
 */
export function lengthOf(received: string): number | undefined {
  const bodyAt = received.indexOf("\r\n\r\n") + 4;
  if (bodyAt < 4) return undefined;
  return bodyAt + Number(/\r\ncontent-length: (\d+)\r\n/i.exec(received)?.[1]);
}
