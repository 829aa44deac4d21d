import { Agent as HttpAgent, type IncomingMessage, request as requestHttp } from "node:http";
import { Agent as HttpsAgent, request as requestHttps } from "node:https";
import { setTimeout as sleep } from "node:timers/promises";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { ConnectError, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { Client, credentials, Metadata, type ServiceError } from "@grpc/grpc-js";
import { ErrorInfoSchema } from "../../../gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../../gen/google/rpc/status_pb.js";
import { type OperationName, operationOf } from "../operations.js";
import { toComparable, toRequestMessage } from "./messages.js";

/** The outcome of a call, as far as the client can know it. */
export type Outcome =
  | { readonly kind: "answered"; readonly data: Fields }
  /** The response was an error of the catalogue. */
  | { readonly kind: "refused"; readonly code: string }
  /** There was no connection, so the call was not sent. */
  | { readonly kind: "unsent" }
  /** Sent, but the server reported that it did not process the call (REFUSED_STREAM). A retry is safe. */
  | { readonly kind: "unprocessed" }
  /** Sent, but there was no response. The call may or may not have taken effect. */
  | { readonly kind: "disconnected"; readonly why: string };

export type Fields = Readonly<Record<string, unknown>>;

/** A client with its own connection. */
export interface Caller {
  /** @param idempotencyKey makes the call safe to retry */
  call(operation: OperationName, credential: string, request: Fields, idempotencyKey?: string): Promise<Outcome>;
  close(): void;
}

/** The addresses of a service, and the CA of its certificate if it uses TLS. */
export interface Target {
  readonly httpUrl: string;
  readonly grpcAddress: string;
  readonly ca?: string;
}

/** Every kind of client that the tests use. */
export const callerKinds = {
  "HTTP, kept alive": openHttp,
  "Connect, kept alive": openConnect,
  "gRPC by grpc-js": openGrpcJs,
  "gRPC by connect-node": openGrpcConnect,
} as const satisfies Record<string, (target: Target) => Caller>;

export type CallerKind = keyof typeof callerKinds;

/** Retries while the service is unavailable: right after its start, it may not be able to verify keys yet. */
export async function callUntilAvailable(caller: Caller, ...args: Parameters<Caller["call"]>): Promise<Outcome> {
  for (let attempt = 1; ; attempt++) {
    const outcome = await caller.call(...args);
    if (outcome.kind !== "refused" || outcome.code !== "service_unavailable" || attempt === 50) return outcome;
    await sleep(100);
  }
}

function openHttp({ httpUrl, ca }: Target): Caller {
  const agent = agentOf(ca);
  const request = ca ? requestHttps : requestHttp;
  return {
    async call(operation, credential, body, idempotencyKey) {
      // Lists also accept POST; that route is the last.
      const path = operationOf(operation).routes.at(-1)?.[1];
      const headers = { ...headersOf(credential, idempotencyKey), "content-type": "application/json" };
      try {
        const sent = request(`${httpUrl}${path}`, { agent, method: "POST", headers, timeout: callTimeoutMs });
        sent.once("timeout", () => sent.destroy(new Error("no response before the timeout")));
        const response = await new Promise<IncomingMessage>((resolve, reject) => {
          sent.once("response", resolve).once("error", reject).end(JSON.stringify(body));
        });
        return readEnvelope(Buffer.concat(await response.toArray()).toString());
      } catch (error) {
        return outcomeOf(error);
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
    defaultTimeoutMs: callTimeoutMs,
  });
  return { ...overTransport(transport), close: () => agent.destroy() };
}

function openGrpcConnect({ grpcAddress, ca }: Target): Caller {
  const baseUrl = `${ca ? "https" : "http"}://${grpcAddress}`;
  const sessionManager = new Http2SessionManager(baseUrl, {}, ca ? { ca } : {});
  ignoreSessionErrors(sessionManager);
  const transport = createGrpcTransport({ baseUrl, sessionManager, defaultTimeoutMs: callTimeoutMs });
  return { ...overTransport(transport), close: () => sessionManager.abort() };
}

function openGrpcJs({ grpcAddress, ca }: Target): Caller {
  const channelCredentials = ca ? credentials.createSsl(Buffer.from(ca)) : credentials.createInsecure();
  // Retries would hide the errors that the tests look for. By default, the clients of one process share a connection.
  const client = new Client(grpcAddress, channelCredentials, {
    "grpc.enable_retries": 0,
    "grpc.use_local_subchannel_pool": 1,
  });
  return {
    call(operation, credential, request, idempotencyKey) {
      const { rpc } = operationOf(operation);
      const bytes = Buffer.from(toBinary(rpc.input, toRequestMessage(rpc.input, request)));
      const metadata = Metadata.fromHttp2Headers(headersOf(credential, idempotencyKey));
      const path = `/${rpc.parent.typeName}/${rpc.name}`;
      return new Promise((resolve) => {
        const deadline = Date.now() + callTimeoutMs;
        client.makeUnaryRequest(path, asIs, asIs, bytes, metadata, { deadline }, (error, response = empty) => {
          if (error) resolve(outcomeOfStatus(error));
          else resolve({ kind: "answered", data: toComparable(rpc.output, fromBinary(rpc.output, response)) });
        });
      });
    },
    close: () => client.close(),
  };
}

/** connect-node 2.1.2 drops its listeners of a session that later emits an error. That would end the test run. */
function ignoreSessionErrors(sessions: Http2SessionManager): void {
  const request = sessions.request.bind(sessions);
  const handled = new WeakSet<object>();
  sessions.request = async (...args) => {
    const stream = await request(...args);
    if (stream.session && !handled.has(stream.session)) handled.add(stream.session.on("error", () => {}));
    return stream;
  };
}

/** Longer than the maximum duration of a call. */
const callTimeoutMs = 20_000;

const empty = Buffer.alloc(0);
const asIs = (bytes: Buffer) => bytes;

function agentOf(ca: string | undefined): HttpAgent {
  const options = { keepAlive: true, maxSockets: 1 };
  return ca ? new HttpsAgent({ ...options, ca }) : new HttpAgent(options);
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
        const response = await transport.unary(rpc, undefined, undefined, headers, message);
        return { kind: "answered", data: toComparable(rpc.output, response.message) };
      } catch (error) {
        return outcomeOf(error);
      }
    },
  };
}

/** A body without the envelope does not come from the service. */
function readEnvelope(text: string): Outcome {
  const { data, error, meta } = JSON.parse(text) as { data?: Fields; error?: { type: string }; meta?: Fields };
  if (meta === undefined) return { kind: "disconnected", why: `unexpected response: ${text}` };
  return error ? { kind: "refused", code: lastSegment(error.type) } : { kind: "answered", data: data ?? {} };
}

function lastSegment(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** An error of Node's or Connect's client. */
function outcomeOf(error: unknown): Outcome {
  const info = error instanceof ConnectError ? error.findDetails(ErrorInfoSchema)[0] : undefined;
  if (info) return { kind: "refused", code: info.reason.toLowerCase() };
  const { message, cause } = error as Error;
  const { code: innermost, syscall } = (cause ?? error) as NodeJS.ErrnoException;
  if (innermost === "ECONNREFUSED" || syscall === "connect") return { kind: "unsent" };
  if (/REFUSED_STREAM/.test(message)) return { kind: "unprocessed" };
  return { kind: "disconnected", why: `${message} (${innermost})` };
}

/** An error of grpc-js's client. */
function outcomeOfStatus(error: ServiceError): Outcome {
  const [bytes] = error.metadata.get("grpc-status-details-bin");
  if (bytes instanceof Buffer) {
    const details = fromBinary(StatusSchema, bytes).details.map((detail) => anyUnpack(detail, ErrorInfoSchema));
    return { kind: "refused", code: details.find(Boolean)?.reason.toLowerCase() ?? "no reason" };
  }
  // The message of grpc-js if it has no connection.
  if (/^No connection established/.test(error.details)) return { kind: "unsent" };
  if (/REFUSED_STREAM|Stream refused/.test(error.details)) return { kind: "unprocessed" };
  return { kind: "disconnected", why: error.message };
}
