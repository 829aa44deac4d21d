import { once } from "node:events";
import { type ClientHttp2Session, connect as connectHttp2, constants, type IncomingHttpHeaders } from "node:http2";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { fromBinary } from "@bufbuild/protobuf";
import { Metadata } from "@grpc/grpc-js";
import { type Answer, patienceMs } from "./answer.js";
import { readConnect } from "./connect-client.js";
import { readError } from "./grpc-client.js";
import { readAnswer } from "./http-client.js";
import type { Replica } from "./replica.js";
import type { Request } from "./request.js";

/** An answer to a call whose body was held back. */
export interface LateAnswer {
  readonly answer: Answer;
  /** When the body was sent; Infinity if the answer came before. */
  readonly bodySentAt: number;
}

/** Sends the headers of a request, holds the body back for so long, and then sends it, by one protocol. */
export interface LateSender {
  readonly name: "http" | "connect" | "grpc";
  /** @param timeoutMs for how long the client says that it waits, where its protocol has a word for that */
  send(replica: Replica, request: Request, holdMs: number, timeoutMs?: number): Promise<LateAnswer>;
  close(): void;
}

const unavailable = (why: string): Answer => ({ kind: "unavailable", why });

export const lateHttp: LateSender = {
  name: "http",
  send({ httpPort }, { http }, holdMs) {
    const headEnd = http.indexOf("\r\n\r\n") + 4;
    return overSocket(httpPort, http.subarray(0, headEnd), http.subarray(headEnd), holdMs, readAnswer);
  },
  close() {},
};

export const lateConnect: LateSender = {
  name: "connect",
  send({ httpPort }, { connect: { head, body } }, holdMs, timeoutMs) {
    const timeout = timeoutMs === undefined ? "" : `\r\nConnect-Timeout-Ms: ${timeoutMs}`;
    return overSocket(httpPort, Buffer.from(`${head}${timeout}\r\n\r\n`), Buffer.from(body), holdMs, readConnect);
  },
  close() {},
};

/** On a connection of its own, so that nothing but this call is held back. */
async function overSocket(
  port: number,
  head: Buffer,
  body: Buffer,
  holdMs: number,
  read: (bytes: Buffer) => Answer | undefined,
): Promise<LateAnswer> {
  const socket = connect({ port, host: "127.0.0.1", noDelay: true });
  let received = Buffer.alloc(0);
  let bodySentAt = Infinity;
  const answered = new Promise<Answer>((resolve) => {
    socket.on("data", (bytes) => {
      received = Buffer.concat([received, bytes]);
      const answer = read(received);
      if (answer !== undefined) resolve(answer);
    });
    socket.on("error", () => {});
    socket.on("close", () => resolve(unavailable("connection broken")));
  });
  socket.write(head);
  const early = await Promise.race([answered, sleep(holdMs)]);
  if (early === undefined) {
    bodySentAt = performance.now();
    socket.write(body);
  }
  const answer = early ?? (await Promise.race([answered, sleep(patienceMs, unavailable("no answer in time"))]));
  socket.destroy();
  return { answer, bodySentAt };
}

/** gRPC on bare HTTP/2: the clients of gRPC send a unary call at once. */
export function createLateGrpc(): LateSender {
  const sessions = new Map<Replica, ClientHttp2Session>();

  function sessionTo(replica: Replica): ClientHttp2Session {
    const known = sessions.get(replica);
    if (known !== undefined && !known.closed && !known.destroyed) return known;
    const session = connectHttp2(`http://127.0.0.1:${replica.grpcPort}`);
    session.on("error", () => {});
    sessions.set(replica, session);
    return session;
  }

  return {
    name: "grpc",
    async send(replica, { grpc, method }, holdMs, timeoutMs) {
      const headers: IncomingHttpHeaders = {};
      const body: Buffer[] = [];
      let bodySentAt = Infinity;
      const stream = sessionTo(replica).request({
        ":method": "POST",
        ":path": grpc.path,
        "content-type": "application/grpc",
        te: "trailers",
        authorization: `${grpc.metadata.get("authorization")[0]}`,
        ...(timeoutMs !== undefined && { "grpc-timeout": `${timeoutMs}m` }),
      });
      const take = (more: IncomingHttpHeaders) => void Object.assign(headers, more);
      stream
        .on("response", take)
        .on("trailers", take)
        .on("error", () => {});
      stream.on("data", (bytes: Buffer) => body.push(bytes));
      const ended = once(stream, "close").catch(() => {});
      const early = await Promise.race([ended.then(() => true), sleep(holdMs, false)]);
      if (!early) {
        bodySentAt = performance.now();
        const prefix = Buffer.alloc(5);
        prefix.writeUInt32BE(grpc.bytes.length, 1);
        stream.end(Buffer.concat([prefix, grpc.bytes]));
        const inTime = await Promise.race([ended.then(() => true), sleep(patienceMs, false)]);
        if (!inTime) stream.close(constants.NGHTTP2_CANCEL);
      }
      const status = headers["grpc-status"];
      if (status === undefined) return { answer: unavailable("connection broken"), bodySentAt };
      if (Number(status) === 0) {
        const message = fromBinary(method.output, Buffer.concat(body).subarray(5));
        return { answer: { kind: "success", fields: message as unknown as Record<string, unknown> }, bodySentAt };
      }
      const details = `${headers["grpc-message"] ?? ""}`;
      const metadata = Metadata.fromHttp2Headers(headers);
      return { answer: readError({ code: Number(status), details, metadata }), bodySentAt };
    },
    close() {
      for (const session of sessions.values()) session.destroy();
    },
  };
}
