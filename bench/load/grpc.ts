// By hand, on bare sockets, for the same reason as the HTTP load. Where bare grpc-js takes 150 µs of CPU for a call, its
// own client took 350 µs, a session of node:http2 150 µs, and this client 8 µs. Frames are made beforehand; a call costs
// copying them, an answer comparing its bytes with those expected.
import { connect } from "node:net";
import {
  frame,
  frameFlag,
  frameHeadLength,
  frameType,
  headerBlocks,
  nothing,
  opening,
  openingWithoutTable,
  unavailable,
  windowUpdate,
} from "./http2.js";
import { createClosedLoop, type Load, WrongAnswer } from "./load.js";

/** A call ready to be sent, on a stream yet to be filled in, and the bytes that must answer it. */
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
  /** How many calls each connection has under way. */
  readonly streams: number;
  /** Gives the next call; they may differ from call to call. */
  readonly next: () => GrpcRequest;
}

/** Makes a call of a message and the message that is to answer it, both encoded. */
export function grpcRequest(message: Uint8Array, answer: Uint8Array): GrpcRequest {
  return { frame: frame(frameType.data, frameFlag.endStream, 0, prefixed(message)), expected: prefixed(answer) };
}

export async function openGrpcLoad(options: GrpcLoadOptions): Promise<Load> {
  const { port, path, credential, connections, streams, next } = options;
  const loop = createClosedLoop();
  const headers = callHeaders({ port, path, credential });
  const callers = await Promise.all(
    Array.from({ length: connections }, () => openCaller(port, headers, { ...loop, next })),
  );
  return {
    run: (seconds) =>
      loop.run(seconds, connections * streams, () => {
        for (const caller of callers) caller.start(streams);
      }),
    close() {
      for (const caller of callers) caller.close();
    },
  };
}

/** The head of every call. */
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

/** One connection with many calls under way. */
export interface Caller {
  /** Starts so many calls; each is followed by another for as long as `answered` says so. */
  start(calls: number): void;
  close(): void;
}

export interface CallerEvents {
  next(): GrpcRequest;
  /** The right answer came. Says whether another call is to follow. */
  answered(request: GrpcRequest): boolean;
  /** The server has too much to do, and said so by UNAVAILABLE. Absent: that is a wrong answer. */
  turnedAway?(request: GrpcRequest): void;
  failed(error: Error): void;
}

/** What is to come on a stream, and how much of it has. */
interface Awaited {
  readonly request: GrpcRequest;
  come: number;
  unavailable: boolean;
}

/** How much may come on a connection before we must allow more. */
const window = 2 ** 30;

export function openCaller(
  port: number,
  headers: ReturnType<typeof headerBlocks>,
  { next, answered, turnedAway, failed }: CallerEvents,
): Promise<Caller> {
  const firstHeaders = frame(frameType.headers, frameFlag.endHeaders, 0, headers.first);
  const laterHeaders = frame(frameType.headers, frameFlag.endHeaders, 0, headers.later);
  const awaited = new Map<number, Awaited>();
  let nextStream = 1;
  let unread: Buffer = nothing;
  let notAllowedAnew = 0;
  let closed = false;
  /** What we have to say when all that came has been read: it goes out in one piece, as other clients do it. */
  let outgoing: Buffer[] = [];

  function startCall(): void {
    const request = next();
    const stream = nextStream;
    nextStream += 2;
    awaited.set(stream, { request, come: 0, unavailable: false });
    outgoing.push(onStream(stream, stream === 1 ? firstHeaders : laterHeaders, request.frame));
  }

  function send(): void {
    if (outgoing.length === 0) return;
    socket.write(outgoing.length === 1 ? (outgoing[0] ?? nothing) : Buffer.concat(outgoing));
    outgoing = [];
  }

  function take(length: number, buffer: Uint8Array): boolean {
    const came = buffer.subarray(0, length) as Buffer;
    const all = unread.length > 0 ? Buffer.concat([unread, came]) : came;
    let at = 0;
    while (at + frameHeadLength <= all.length) {
      const end = at + frameHeadLength + all.readUIntBE(at, 3);
      if (end > all.length) break;
      takeFrame(all, at, end);
      at = end;
    }
    unread = at < all.length ? Buffer.from(all.subarray(at)) : nothing;
    send();
    return true;
  }

  function takeFrame(all: Buffer, at: number, end: number): void {
    const type = all.readUInt8(at + 3);
    const flags = all.readUInt8(at + 4);
    const stream = all.readUInt32BE(at + 5);
    switch (type) {
      case frameType.data:
        takeData(stream, all, at + frameHeadLength, end);
        if (flags & frameFlag.endStream) takeEnd(stream);
        break;
      case frameType.headers:
        if (turnedAway) takeHeaders(stream, all.subarray(at + frameHeadLength, end));
        if (flags & frameFlag.endStream) takeEnd(stream);
        break;
      case frameType.settings:
      case frameType.ping:
        if (flags & frameFlag.ack) break;
        outgoing.push(
          frame(type, frameFlag.ack, 0, type === frameType.ping ? all.subarray(at + frameHeadLength, end) : nothing),
        );
        break;
      case frameType.resetStream:
        // After a whole answer it says no more than that the rest of the request is not wanted.
        if (awaited.has(stream)) failed(new WrongAnswer("the server gave up a call"));
        break;
      case frameType.goAway:
        failed(new WrongAnswer("the server gave up a call"));
    }
  }

  function takeData(stream: number, all: Buffer, from: number, to: number): void {
    const call = awaited.get(stream);
    const come = (call?.come ?? 0) + to - from;
    const expected = call?.request.expected ?? nothing;
    if (!call || come > expected.length || all.compare(expected, call.come, come, from, to) !== 0) {
      failed(new WrongAnswer(`expected was ${expected.toString("hex")}, not ${all.toString("hex", from, to)}`));
      return;
    }
    call.come = come;
    notAllowedAnew += to - from;
    if (notAllowedAnew > window / 2) {
      outgoing.push(windowUpdate(notAllowedAnew));
      notAllowedAnew = 0;
    }
  }

  function takeHeaders(stream: number, block: Buffer): void {
    const call = awaited.get(stream);
    if (call && block.includes(unavailable)) call.unavailable = true;
  }

  /** The status is read for one thing alone: only a call that succeeded has its answer when it ends. */
  function takeEnd(stream: number): void {
    const call = awaited.get(stream);
    awaited.delete(stream);
    if (call?.unavailable) turnedAway?.(call.request);
    else if (!call || call.come < call.request.expected.length) {
      failed(new WrongAnswer("a call ended without its answer"));
    } else if (answered(call.request)) startCall();
  }

  const socket = connect({
    port,
    host: "127.0.0.1",
    noDelay: true,
    onread: { buffer: Buffer.allocUnsafe(64 * 1024), callback: take },
  });
  return new Promise((resolve, reject) => {
    socket.once("connect", () => {
      socket.write(Buffer.concat([turnedAway ? openingWithoutTable : opening, windowUpdate(window)]));
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
    socket.once("close", () => closed || failed(new WrongAnswer("the server closed a connection")));
  });
}

/** The two frames of a call, on this stream. */
function onStream(stream: number, headers: Buffer, data: Buffer): Buffer {
  const bytes = Buffer.allocUnsafe(headers.length + data.length);
  bytes.set(headers, 0);
  bytes.set(data, headers.length);
  bytes.writeUInt32BE(stream, 5);
  bytes.writeUInt32BE(stream, headers.length + 5);
  return bytes;
}

/** A message as gRPC sends it: not compressed, so long. */
function prefixed(message: Uint8Array): Buffer {
  const bytes = Buffer.alloc(5 + message.length);
  bytes.writeUInt32BE(message.length, 1);
  bytes.set(message, 5);
  return bytes;
}
