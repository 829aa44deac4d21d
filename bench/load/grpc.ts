// Written by hand on plain sockets, for the same reason as the HTTP load. A bare grpc-js server uses 150 µs of CPU per
// call. The grpc-js client used 350 µs, a node:http2 session 150 µs, and this client 8 µs. Frames are built beforehand:
// a call only copies them, and a response is only compared with the expected bytes.
import { connect } from "node:net";
import {
  connectionPreface,
  emptyBuffer,
  frame,
  frameFlag,
  frameHeaderLength,
  frameType,
  headerBlocks,
  prefaceWithoutHeaderTable,
  unavailable,
  windowUpdate,
} from "./http2.js";
import { createClosedLoop, type Load, UnexpectedResponse } from "./load.js";

/** An encoded call without its stream id, and the bytes of the expected response. */
export interface GrpcRequest {
  readonly frame: Buffer;
  readonly expected: Buffer;
}

export interface GrpcLoadOptions {
  readonly port: number;
  /** Such as /latchkey.v1.KeysService/VerifyKey. */
  readonly path: string;
  readonly credential: string;
  readonly connections: number;
  /** Calls in flight per connection. */
  readonly streams: number;
  /** Returns the next call. Calls may differ. */
  readonly next: () => GrpcRequest;
}

/** Builds a call from an encoded request and the expected encoded response. */
export function grpcRequest(message: Uint8Array, response: Uint8Array): GrpcRequest {
  return { frame: frame(frameType.data, frameFlag.endStream, 0, prefixed(message)), expected: prefixed(response) };
}

export async function openGrpcLoad(options: GrpcLoadOptions): Promise<Load> {
  const { port, path, credential, connections, streams, next } = options;
  const loop = createClosedLoop();
  const headers = callHeaders({ port, path, credential });
  const grpcConnections = await Promise.all(
    Array.from({ length: connections }, () => openGrpcConnection(port, headers, { ...loop, next })),
  );
  return {
    run: (seconds) =>
      loop.run(seconds, connections * streams, () => {
        for (const connection of grpcConnections) connection.start(streams);
      }),
    close() {
      for (const connection of grpcConnections) connection.close();
    },
  };
}

/** The request headers of every call. */
export function callHeaders({ port, path, credential }: Pick<GrpcLoadOptions, "port" | "path" | "credential">) {
  return headerBlocks({
    ":method": "POST",
    ":scheme": "http",
    ":path": path,
    ":authority": `127.0.0.1:${port}`,
    te: "trailers",
    "content-type": "application/grpc",
    "user-agent": "latchkey-bench",
    authorization: `Bearer ${credential}`,
  });
}

/** One connection with many calls in flight. */
export interface GrpcConnection {
  /** Starts this many calls. Each is followed by another while `succeeded` returns true. */
  start(calls: number): void;
  close(): void;
}

export interface GrpcConnectionEvents {
  next(): GrpcRequest;
  /** The expected response arrived. Returns whether to start another call. */
  succeeded(request: GrpcRequest): boolean;
  /** The server shed the call with UNAVAILABLE. If absent, that is an unexpected response. */
  shed?(request: GrpcRequest): void;
  failed(error: Error): void;
}

/** A call in flight, and how many response bytes have arrived. */
interface PendingCall {
  readonly request: GrpcRequest;
  receivedBytes: number;
  unavailable: boolean;
}

/** The flow-control window of a connection in bytes. */
const windowBytes = 2 ** 30;

export function openGrpcConnection(
  port: number,
  headers: ReturnType<typeof headerBlocks>,
  { next, succeeded, shed, failed }: GrpcConnectionEvents,
): Promise<GrpcConnection> {
  const firstHeaders = frame(frameType.headers, frameFlag.endHeaders, 0, headers.first);
  const laterHeaders = frame(frameType.headers, frameFlag.endHeaders, 0, headers.later);
  const pending = new Map<number, PendingCall>();
  let nextStream = 1;
  let incomplete: Buffer = emptyBuffer;
  let consumedBytes = 0;
  let closed = false;
  /** Frames to send once all received bytes are processed: in one write, as other clients do. */
  let outgoing: Buffer[] = [];

  function startCall(): void {
    const request = next();
    const stream = nextStream;
    nextStream += 2;
    pending.set(stream, { request, receivedBytes: 0, unavailable: false });
    outgoing.push(withStreamId(stream, stream === 1 ? firstHeaders : laterHeaders, request.frame));
  }

  function send(): void {
    if (outgoing.length === 0) return;
    socket.write(outgoing.length === 1 ? (outgoing[0] ?? emptyBuffer) : Buffer.concat(outgoing));
    outgoing = [];
  }

  function onBytes(length: number, buffer: Uint8Array): boolean {
    const received = buffer.subarray(0, length) as Buffer;
    const all = incomplete.length > 0 ? Buffer.concat([incomplete, received]) : received;
    let at = 0;
    while (at + frameHeaderLength <= all.length) {
      const end = at + frameHeaderLength + all.readUIntBE(at, 3);
      if (end > all.length) break;
      onFrame(all, at, end);
      at = end;
    }
    incomplete = at < all.length ? Buffer.from(all.subarray(at)) : emptyBuffer;
    send();
    return true;
  }

  function onFrame(all: Buffer, at: number, end: number): void {
    const type = all.readUInt8(at + 3);
    const flags = all.readUInt8(at + 4);
    const stream = all.readUInt32BE(at + 5);
    switch (type) {
      case frameType.data:
        onData(stream, all, at + frameHeaderLength, end);
        if (flags & frameFlag.endStream) onEndStream(stream);
        break;
      case frameType.headers:
        if (shed) onHeaders(stream, all.subarray(at + frameHeaderLength, end));
        if (flags & frameFlag.endStream) onEndStream(stream);
        break;
      case frameType.settings:
      case frameType.ping:
        if (flags & frameFlag.ack) break;
        outgoing.push(
          frame(
            type,
            frameFlag.ack,
            0,
            type === frameType.ping ? all.subarray(at + frameHeaderLength, end) : emptyBuffer,
          ),
        );
        break;
      case frameType.resetStream:
        // After a complete response, a reset only says that the rest of the request is not needed.
        if (pending.has(stream)) failed(new UnexpectedResponse("the server reset a stream"));
        break;
      case frameType.goAway:
        failed(new UnexpectedResponse("the server sent GOAWAY"));
    }
  }

  function onData(stream: number, all: Buffer, from: number, to: number): void {
    const call = pending.get(stream);
    const receivedBytes = (call?.receivedBytes ?? 0) + to - from;
    const expected = call?.request.expected ?? emptyBuffer;
    if (
      !call ||
      receivedBytes > expected.length ||
      all.compare(expected, call.receivedBytes, receivedBytes, from, to) !== 0
    ) {
      failed(new UnexpectedResponse(`expected ${expected.toString("hex")}, received ${all.toString("hex", from, to)}`));
      return;
    }
    call.receivedBytes = receivedBytes;
    consumedBytes += to - from;
    if (consumedBytes > windowBytes / 2) {
      outgoing.push(windowUpdate(consumedBytes));
      consumedBytes = 0;
    }
  }

  function onHeaders(stream: number, block: Buffer): void {
    const call = pending.get(stream);
    if (call && block.includes(unavailable)) call.unavailable = true;
  }

  /** The status is checked only for UNAVAILABLE. Any other failed call ends without its complete response. */
  function onEndStream(stream: number): void {
    const call = pending.get(stream);
    pending.delete(stream);
    if (call?.unavailable) shed?.(call.request);
    else if (!call || call.receivedBytes < call.request.expected.length) {
      failed(new UnexpectedResponse("a call ended without its response"));
    } else if (succeeded(call.request)) startCall();
  }

  const socket = connect({
    port,
    host: "127.0.0.1",
    noDelay: true,
    onread: { buffer: Buffer.allocUnsafe(64 * 1024), callback: onBytes },
  });
  return new Promise((resolve, reject) => {
    socket.once("connect", () => {
      socket.write(Buffer.concat([shed ? prefaceWithoutHeaderTable : connectionPreface, windowUpdate(windowBytes)]));
      resolve({
        start(calls) {
          for (let started = 0; started < calls; started++) startCall();
          send();
        },
        close() {
          closed = true;
          socket.destroy();
        },
      });
    });
    socket.on("error", (error) => {
      reject(error);
      failed(error);
    });
    socket.once("close", () => closed || failed(new UnexpectedResponse("the server closed a connection")));
  });
}

/** The HEADERS and DATA frames of a call, with this stream id. */
function withStreamId(stream: number, headers: Buffer, data: Buffer): Buffer {
  const bytes = Buffer.allocUnsafe(headers.length + data.length);
  bytes.set(headers, 0);
  bytes.set(data, headers.length);
  bytes.writeUInt32BE(stream, 5);
  bytes.writeUInt32BE(stream, headers.length + 5);
  return bytes;
}

/** A gRPC message with its prefix: uncompressed, and its length. */
function prefixed(message: Uint8Array): Buffer {
  const bytes = Buffer.alloc(5 + message.length);
  bytes.writeUInt32BE(message.length, 1);
  bytes.set(message, 5);
  return bytes;
}
