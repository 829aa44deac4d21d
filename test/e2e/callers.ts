import { Agent as HttpAgent, type IncomingMessage, request as requestHttp } from "node:http";
import { Agent as HttpsAgent, request as requestHttps } from "node:https";
import { setTimeout as sleep } from "node:timers/promises";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { ConnectError, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { Client, credentials, Metadata, type ServiceError } from "@grpc/grpc-js";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../gen/google/rpc/status_pb.js";
import { toComparable, toRequestMessage } from "../contract/messages.js";
import { type OperationName, operationOf } from "../contract/operations.js";

/** What became of a call, as far as its client can know. */
export type Fate =
  | { readonly kind: "answered"; readonly data: Fields }
  /** Answered with an error of the catalogue. */
  | { readonly kind: "declined"; readonly code: string }
  /** There was no connection to send it on. */
  | { readonly kind: "unsent" }
  /** Sent, but the server said that it had not taken it: it can be sent again without a thought. */
  | { readonly kind: "returned" }
  /** Sent, and nobody knows what became of it. */
  | { readonly kind: "cut"; readonly why: string };

export type Fields = Readonly<Record<string, unknown>>;

/** A client with one connection of its own. */
export interface Caller {
  /** @param idempotencyKey with which the same can be asked for again */
  call(operation: OperationName, credential: string, request: Fields, idempotencyKey?: string): Promise<Fate>;
  close(): void;
}

/** Where a service is, and who signed its certificate if its ports are encrypted. */
export interface Target {
  readonly httpUrl: string;
  readonly grpcAddress: string;
  readonly ca?: string;
}

/** Every kind of client that the service is called by. */
export const callerKinds = {
  "HTTP, kept alive": openHttp,
  "Connect, kept alive": openConnect,
  "gRPC by grpc-js": openGrpcJs,
  "gRPC by connect-node": openGrpcConnect,
} as const satisfies Record<string, (target: Target) => Caller>;

export type CallerKind = keyof typeof callerKinds;

/** Asks until it is judged: a service that has only just started may say that it cannot yet. */
export async function judged(caller: Caller, ...asked: Parameters<Caller["call"]>): Promise<Fate> {
  for (let attempt = 1; ; attempt++) {
    const fate = await caller.call(...asked);
    if (fate.kind !== "declined" || fate.code !== "service_unavailable" || attempt === 50) return fate;
    await sleep(100);
  }
}

function openHttp({ httpUrl, ca }: Target): Caller {
  const agent = agentOf(ca);
  const request = ca ? requestHttps : requestHttp;
  return {
    async call(operation, credential, body, idempotencyKey) {
      // Lists are asked by POST, too; that path is the last.
      const path = operationOf(operation).routes.at(-1)?.[1];
      const headers = { ...headersOf(credential, idempotencyKey), "content-type": "application/json" };
      try {
        const sent = request(`${httpUrl}${path}`, { agent, method: "POST", headers, timeout: patienceMs });
        sent.once("timeout", () => sent.destroy(new Error("no answer in time")));
        const response = await new Promise<IncomingMessage>((resolve, reject) => {
          sent.once("response", resolve).once("error", reject).end(JSON.stringify(body));
        });
        return readEnvelope(Buffer.concat(await response.toArray()).toString());
      } catch (error) {
        return fateOf(error);
      }
    },
    close: () => agent.destroy(),
  };
}

function openConnect({ httpUrl, ca }: Target): Caller {
  const agent = agentOf(ca);
  const transport = createConnectTransport({
    baseUrl: httpUrl,
    httpVersion: "1.1",
    nodeOptions: { agent },
    defaultTimeoutMs: patienceMs,
  });
  return { ...overTransport(transport), close: () => agent.destroy() };
}

function openGrpcConnect({ grpcAddress, ca }: Target): Caller {
  const baseUrl = `${ca ? "https" : "http"}://${grpcAddress}`;
  const sessionManager = new Http2SessionManager(baseUrl, {}, ca ? { ca } : {});
  hearErrors(sessionManager);
  const transport = createGrpcTransport({ baseUrl, sessionManager, defaultTimeoutMs: patienceMs });
  return { ...overTransport(transport), close: () => sessionManager.abort() };
}

function openGrpcJs({ grpcAddress, ca }: Target): Caller {
  const trust = ca ? credentials.createSsl(Buffer.from(ca)) : credentials.createInsecure();
  // Retries would hide what is looked for; and by default, the clients of one process share a connection.
  const client = new Client(grpcAddress, trust, { "grpc.enable_retries": 0, "grpc.use_local_subchannel_pool": 1 });
  return {
    call(operation, credential, request, idempotencyKey) {
      const { rpc } = operationOf(operation);
      const bytes = Buffer.from(toBinary(rpc.input, toRequestMessage(rpc.input, request)));
      const metadata = Metadata.fromHttp2Headers(headersOf(credential, idempotencyKey));
      const path = `/${rpc.parent.typeName}/${rpc.name}`;
      return new Promise((resolve) => {
        const deadline = Date.now() + patienceMs;
        client.makeUnaryRequest(path, asIs, asIs, bytes, metadata, { deadline }, (error, answer = empty) => {
          if (error) resolve(fateOfStatus(error));
          else resolve({ kind: "answered", data: toComparable(rpc.output, fromBinary(rpc.output, answer)) });
        });
      });
    },
    close: () => client.close(),
  };
}

/** connect-node 2.1.2 lets go of a session on which it is about to emit an error, and that would end the test run. */
function hearErrors(sessions: Http2SessionManager): void {
  const request = sessions.request.bind(sessions);
  const heard = new WeakSet<object>();
  sessions.request = async (...asked) => {
    const stream = await request(...asked);
    if (stream.session && !heard.has(stream.session)) heard.add(stream.session.on("error", () => {}));
    return stream;
  };
}

/** Longer than any call may take. */
const patienceMs = 20_000;

const empty = Buffer.alloc(0);
const asIs = (bytes: Buffer) => bytes;

function agentOf(ca: string | undefined): HttpAgent {
  const one = { keepAlive: true, maxSockets: 1 };
  return ca ? new HttpsAgent({ ...one, ca }) : new HttpAgent(one);
}

function headersOf(credential: string, idempotencyKey: string | undefined): Record<string, string> {
  const authorization = `Bearer ${credential}`;
  return idempotencyKey === undefined ? { authorization } : { authorization, "idempotency-key": idempotencyKey };
}

function overTransport(transport: Transport): Pick<Caller, "call"> {
  return {
    async call(operation, credential, request, idempotencyKey) {
      const { rpc } = operationOf(operation);
      const headers = headersOf(credential, idempotencyKey);
      try {
        const message = toRequestMessage(rpc.input, request);
        const answer = await transport.unary(rpc, undefined, undefined, headers, message);
        return { kind: "answered", data: toComparable(rpc.output, answer.message) };
      } catch (error) {
        return fateOf(error);
      }
    },
  };
}

/** What is not an envelope was not written by the service. */
function readEnvelope(text: string): Fate {
  const { data, error, meta } = JSON.parse(text) as { data?: Fields; error?: { type: string }; meta?: Fields };
  if (meta === undefined) return { kind: "cut", why: `answered with ${text}` };
  return error ? { kind: "declined", code: lastWord(error.type) } : { kind: "answered", data: data ?? {} };
}

function lastWord(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** An error of Node's or Connect's client. */
function fateOf(error: unknown): Fate {
  const info = error instanceof ConnectError ? error.findDetails(ErrorInfoSchema)[0] : undefined;
  if (info) return { kind: "declined", code: info.reason.toLowerCase() };
  const { message, cause } = error as Error;
  const { code: innermost, syscall } = (cause ?? error) as NodeJS.ErrnoException;
  if (innermost === "ECONNREFUSED" || syscall === "connect") return { kind: "unsent" };
  if (/REFUSED_STREAM/.test(message)) return { kind: "returned" };
  return { kind: "cut", why: `${message} (${innermost})` };
}

/** An error of grpc-js's client. */
function fateOfStatus(error: ServiceError): Fate {
  const [bytes] = error.metadata.get("grpc-status-details-bin");
  if (bytes instanceof Buffer) {
    const details = fromBinary(StatusSchema, bytes).details.map((detail) => anyUnpack(detail, ErrorInfoSchema));
    return { kind: "declined", code: details.find(Boolean)?.reason.toLowerCase() ?? "no reason" };
  }
  // In these words it says that it found no connection to send the call on.
  if (/^No connection established/.test(error.details)) return { kind: "unsent" };
  if (/REFUSED_STREAM|Stream refused/.test(error.details)) return { kind: "returned" };
  return { kind: "cut", why: error.message };
}
