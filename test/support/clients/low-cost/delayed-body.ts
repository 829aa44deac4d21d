import { once } from "node:events";
import { type ClientHttp2Session, constants, type IncomingHttpHeaders } from "node:http2";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { fromBinary } from "@bufbuild/protobuf";
import { Metadata } from "@grpc/grpc-js";
import { grpcFrame, openSession } from "../grpc-streams.js";
import { type CallResult, callTimeoutMs } from "./client.js";
import { readConnectResponse } from "./connect.js";
import { readError } from "./grpc.js";
import { readHttpResponse } from "./http.js";
import type { Request } from "./request.js";

/** The ports of a service on this machine. */
export interface Ports {
  readonly httpPort: number;
  readonly grpcPort: number;
}

/** The result of a call with a delayed body. */
export interface DelayedResult {
  readonly result: CallResult;
  /** When the body was sent. Infinity if the response arrived before. */
  readonly bodySentAt: number;
}

/** Sends the headers of a request, waits, and then sends its body, over one protocol. */
export interface DelayedSender {
  readonly name: "http" | "connect" | "grpc";
  /** @param timeoutMs the deadline that the client sends, if its protocol supports deadlines */
  send(target: Ports, request: Request, delayMs: number, timeoutMs?: number): Promise<DelayedResult>;
  close(): void;
}

const unavailable = (why: string): CallResult => ({ kind: "unavailable", why });

export const delayedHttp: DelayedSender = {
  name: "http",
  send({ httpPort }, { http }, delayMs) {
    const headersEnd = http.indexOf("\r\n\r\n") + 4;
    return overSocket(httpPort, http.subarray(0, headersEnd), http.subarray(headersEnd), delayMs, readHttpResponse);
  },
  close() {},
};

export const delayedConnect: DelayedSender = {
  name: "connect",
  send({ httpPort }, { connect: { headers, body } }, delayMs, timeoutMs) {
    const timeout = timeoutMs === undefined ? "" : `\r\nConnect-Timeout-Ms: ${timeoutMs}`;
    return overSocket(
      httpPort,
      Buffer.from(`${headers}${timeout}\r\n\r\n`),
      Buffer.from(body),
      delayMs,
      readConnectResponse,
    );
  },
  close() {},
};

/** Uses a new connection, so that no other call is delayed. */
async function overSocket(
  port: number,
  headers: Buffer,
  body: Buffer,
  delayMs: number,
  read: (bytes: Buffer) => CallResult | undefined,
): Promise<DelayedResult> {
  const socket = connect({ port, host: "127.0.0.1", noDelay: true });
  let received = Buffer.alloc(0);
  let bodySentAt = Infinity;
  const responded = new Promise<CallResult>((resolve) => {
    socket.on("data", (bytes) => {
      received = Buffer.concat([received, bytes]);
      const result = read(received);
      if (result !== undefined) resolve(result);
    });
    socket.on("error", () => {});
    socket.on("close", () => resolve(unavailable("connection broken")));
  });
  socket.write(headers);
  const early = await Promise.race([responded, sleep(delayMs)]);
  if (early === undefined) {
    bodySentAt = performance.now();
    socket.write(body);
  }
  const result = early ?? (await Promise.race([responded, sleep(callTimeoutMs, unavailable("timeout"))]));
  socket.destroy();
  return { result, bodySentAt };
}

/** gRPC over plain HTTP/2, because gRPC clients send headers and message of a unary call together. */
export function createDelayedGrpc(): DelayedSender {
  const sessions = new Map<Ports, ClientHttp2Session>();

  function sessionTo(target: Ports): ClientHttp2Session {
    const existing = sessions.get(target);
    if (existing !== undefined && !existing.closed && !existing.destroyed) return existing;
    const session = openSession(`127.0.0.1:${target.grpcPort}`);
    sessions.set(target, session);
    return session;
  }

  return {
    name: "grpc",
    async send(target, { grpc, method }, delayMs, timeoutMs) {
      const headers: IncomingHttpHeaders = {};
      const body: Buffer[] = [];
      let bodySentAt = Infinity;
      const stream = sessionTo(target).request({
        ":method": "POST",
        ":path": grpc.path,
        "content-type": "application/grpc",
        te: "trailers",
        authorization: `${grpc.metadata.get("authorization")[0]}`,
        ...(timeoutMs !== undefined && { "grpc-timeout": `${timeoutMs}m` }),
      });
      const collect = (more: IncomingHttpHeaders) => void Object.assign(headers, more);
      stream
        .on("response", collect)
        .on("trailers", collect)
        .on("error", () => {});
      stream.on("data", (bytes: Buffer) => body.push(bytes));
      const ended = once(stream, "close").catch(() => {});
      const early = await Promise.race([ended.then(() => true), sleep(delayMs, false)]);
      if (!early) {
        bodySentAt = performance.now();
        stream.end(grpcFrame(grpc.bytes));
        const inTime = await Promise.race([ended.then(() => true), sleep(callTimeoutMs, false)]);
        if (!inTime) stream.close(constants.NGHTTP2_CANCEL);
      }
      const status = headers["grpc-status"];
      if (status === undefined) return { result: unavailable("connection broken"), bodySentAt };
      if (Number(status) === 0) {
        const message = fromBinary(method.output, Buffer.concat(body).subarray(5));
        return { result: { kind: "success", fields: message as unknown as Record<string, unknown> }, bodySentAt };
      }
      const details = `${headers["grpc-message"] ?? ""}`;
      const metadata = Metadata.fromHttp2Headers(headers);
      return { result: readError({ code: Number(status), details, metadata }), bodySentAt };
    },
    close() {
      for (const session of sessions.values()) session.destroy();
    },
  };
}
