import { once } from "node:events";
import { type ClientHttp2Session, connect as connectHttp2, constants, type IncomingHttpHeaders } from "node:http2";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { fromBinary } from "@bufbuild/protobuf";
import { Metadata } from "@grpc/grpc-js";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { type Answer, patienceMs, withoutJudgement } from "./answer.js";
import { readError } from "./grpc-door.js";
import { readAnswer } from "./http-door.js";
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

/** An answer of Connect, once it is here as a whole. */
function readConnect(bytes: Buffer): Answer | undefined {
  const headEnd = bytes.indexOf("\r\n\r\n");
  if (headEnd < 0) return undefined;
  const head = bytes.toString("latin1", 0, headEnd);
  const length = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? Number.NaN);
  const chunked = /\r\ntransfer-encoding: *chunked/i.test(head);
  if (chunked ? !bytes.subarray(-7).includes("0\r\n\r\n") : bytes.length < headEnd + 4 + length) return undefined;
  const text = bytes.toString("utf8", headEnd + 4);
  const body = JSON.parse(text.slice(text.indexOf("{"), text.lastIndexOf("}") + 1) || "{}") as ConnectBody;
  if (head.startsWith("HTTP/1.1 200")) return { kind: "success", fields: body };
  const info = body.details?.find(({ type }) => type === ErrorInfoSchema.typeName);
  if (info === undefined) return unavailable(head.slice(0, head.indexOf("\r\n")));
  const code = fromBinary(ErrorInfoSchema, Buffer.from(info.value, "base64")).reason.toLowerCase();
  return withoutJudgement.has(code) ? unavailable(code) : { kind: "refused", code };
}

type ConnectBody = Record<string, unknown> & { readonly details?: readonly { type: string; value: string }[] };

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
